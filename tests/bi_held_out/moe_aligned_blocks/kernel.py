"""Top-2 mixture: tokens sorted by expert, padded to blocks of 16, one configuration for all batches, ordered combine."""
import torch
import triton
import triton.language as tl

BLOCK_M, BLOCK_N, BLOCK_K, TOPK = 16, 64, 64, 2


@triton.jit
def _experts(x_ptr, w_ptr, slot_ptr, owner_ptr, y_ptr, n_slots, N: tl.constexpr, K: tl.constexpr, TOPK: tl.constexpr,
             BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    pm, pn = tl.program_id(0), tl.program_id(1)
    slot = tl.load(slot_ptr + pm * BM + tl.arange(0, BM))
    live = slot < n_slots
    e = tl.load(owner_ptr + pm)
    n = pn * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k0 in range(0, K, BK):
        k = k0 + tl.arange(0, BK)
        x = tl.load(x_ptr + (slot // TOPK)[:, None] * K + k[None, :], mask=live[:, None], other=0.0)
        w = tl.load(w_ptr + e * K * N + k[:, None] * N + n[None, :])
        acc = tl.dot(x, w, acc)
    tl.store(y_ptr + slot[:, None] * N + n[None, :], acc, mask=live[:, None])


@triton.jit
def _combine(y_ptr, g_ptr, o_ptr, N: tl.constexpr, TOPK: tl.constexpr, BLOCK: tl.constexpr):
    t = tl.program_id(0)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), tl.float32)
    for j in tl.static_range(TOPK):
        acc += tl.load(g_ptr + t * TOPK + j) * tl.load(y_ptr + (t * TOPK + j) * N + c)
    tl.store(o_ptr + t * N + c, acc.to(tl.float16))


def align(flat, E):
    order = torch.argsort(flat, stable=True)
    counts = torch.bincount(flat, minlength=E).tolist()
    slots = torch.full((sum(triton.cdiv(c, BLOCK_M) for c in counts) * BLOCK_M,), flat.numel(), dtype=torch.int32)
    owner, src, dst = [], 0, 0
    host = order.cpu().to(torch.int32)
    for e, c in enumerate(counts):
        slots[dst : dst + c] = host[src : src + c]
        blocks = triton.cdiv(c, BLOCK_M)
        owner += [e] * blocks
        src, dst = src + c, dst + blocks * BLOCK_M
    return slots.to(flat.device), torch.tensor(owner, dtype=torch.int32, device=flat.device)


def run(x, logits, w):
    num_tokens, K = x.shape
    E, _, N = w.shape
    top, idx = torch.topk(logits.float(), TOPK, dim=-1)
    gates = torch.sigmoid(top[:, 0] - top[:, 1])
    gates = torch.stack((gates, 1.0 - gates), dim=1).contiguous()
    slots, owner = align(idx.flatten(), E)
    n_slots = num_tokens * TOPK
    y = torch.empty((n_slots, N), device=x.device, dtype=torch.float32)
    _experts[(owner.numel(), N // BLOCK_N)](x, w, slots, owner, y, n_slots, N, K, TOPK, BLOCK_M, BLOCK_N, BLOCK_K)
    out = torch.empty((num_tokens, N), device=x.device, dtype=torch.float16)
    _combine[(num_tokens, N // BLOCK_N)](y, gates, out, N, TOPK, BLOCK_N)
    return out
