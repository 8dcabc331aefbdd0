import torch
import triton
import triton.language as tl


@triton.jit
def token_moe(x, ids, gate, w, y, K, N, TOPK: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    t = tl.program_id(0)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    out = tl.zeros((BN,), tl.float32)
    for j in tl.static_range(TOPK):
        e = tl.load(ids + t * TOPK + j)
        acc = tl.zeros((BN,), tl.float32)
        for k0 in range(0, K, BK):
            k = k0 + tl.arange(0, BK)
            xv = tl.load(x + t * K + k).to(tl.float32)
            acc += tl.sum(xv[:, None] * tl.load(w + (e * K + k[:, None]) * N + n[None, :]).to(tl.float32), 0)
        out += acc * tl.load(gate + t * TOPK + j)
    tl.store(y + t * N + n, out)


def run(x, topk_ids, topk_weights, w):
    num_tokens, K = x.shape
    N = w.shape[-1]
    y = torch.empty((num_tokens, N), dtype=torch.float32, device=x.device)
    token_moe[(num_tokens, N // 32)](x, topk_ids, topk_weights, w, y, K, N, TOPK=topk_ids.shape[1], BN=32, BK=64)
    return y
