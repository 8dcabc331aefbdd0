import torch
import triton
import triton.language as tl


@triton.jit
def score_kernel(q, w, k, out, T, S, H: tl.constexpr, D: tl.constexpr, BT: tl.constexpr, BS: tl.constexpr):
    t = tl.program_id(0) * BT + tl.arange(0, BT)
    s = tl.program_id(1) * BS + tl.arange(0, BS)
    d = tl.arange(0, D)
    kt = tl.load(k + s[None, :] * D + d[:, None], mask=(s < S)[None, :], other=0.0)
    total = tl.zeros((BT, BS), tl.float32)
    for h in tl.static_range(H):
        qt = tl.load(q + (t[:, None] * H + h) * D + d[None, :], mask=(t < T)[:, None], other=0.0)
        wt = tl.load(w + t * H + h, mask=t < T, other=0.0)
        total += wt[:, None] * tl.maximum(tl.dot(qt, kt), 0.0)
    tl.store(out + t[:, None] * S + s[None, :], total, mask=(t < T)[:, None] & (s < S)[None, :])


def run(q, head_weights, k):
    T, H, D = q.shape
    S = k.shape[0]
    out = torch.empty((T, S), dtype=torch.float32, device=q.device)
    score_kernel[(triton.cdiv(T, 16), triton.cdiv(S, 64))](q, head_weights, k, out, T, S, H=H, D=D, BT=16, BS=64)
    return out
