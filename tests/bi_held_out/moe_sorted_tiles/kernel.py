"""Mixture of experts, top-k: one grouped GEMM over tokens sorted by expert; tile height follows the token count."""
import torch
import triton
import triton.language as tl


@triton.jit
def grouped_gemm(X, W, WEIGHT, OUT, ORDER, TILE_EXPERT, slots, N, K, TOPK: tl.constexpr, BLOCK_SIZE_M: tl.constexpr,
                 BLOCK_SIZE_N: tl.constexpr, BLOCK_SIZE_K: tl.constexpr):
    tile = tl.program_id(0)
    e = tl.load(TILE_EXPERT + tile)
    slot = tl.load(ORDER + tile * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M))
    live = slot < slots
    rn = tl.program_id(1) * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)
    acc = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), tl.float32)
    for k0 in range(0, K, BLOCK_SIZE_K):
        rk = k0 + tl.arange(0, BLOCK_SIZE_K)
        x = tl.load(X + (slot // TOPK)[:, None] * K + rk[None, :], mask=live[:, None], other=0.0)
        w = tl.load(W + e * K * N + rk[:, None] * N + rn[None, :])
        acc = tl.dot(x, w, acc)
    g = tl.load(WEIGHT + slot, mask=live, other=0.0)
    tl.store(OUT + slot[:, None] * N + rn[None, :], acc * g[:, None], mask=live[:, None])


@triton.jit
def add_choices(PARTS, Y, N, TOPK: tl.constexpr, BLOCK: tl.constexpr):
    token = tl.program_id(0)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    y = tl.zeros([BLOCK], tl.float32)
    for j in tl.static_range(TOPK):
        y += tl.load(PARTS + (token * TOPK + j) * N + n, mask=n < N, other=0.0)
    tl.store(Y + token * N + n, y, mask=n < N)


def get_config(M: int) -> dict:
    base = {"BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64}
    return {"BLOCK_SIZE_M": 16 if M <= 32 else 32, **base}


def sort_by_expert(ids, num_experts, block):
    flat = ids.reshape(-1).long()
    count = torch.bincount(flat, minlength=num_experts)
    tiles = (count + block - 1) // block
    start = (tiles.cumsum(0) - tiles) * block
    order = torch.argsort(flat, stable=True)
    rank = torch.arange(flat.numel(), device=flat.device) - (count.cumsum(0) - count)[flat[order]]
    table = torch.full((int(tiles.sum()) * block,), flat.numel(), dtype=torch.int32, device=flat.device)
    table[start[flat[order]] + rank] = order.to(torch.int32)
    owner = torch.repeat_interleave(torch.arange(num_experts, device=flat.device, dtype=torch.int32), tiles)
    return table, owner


def run(x, weights, ids, w):
    num_tokens, K = x.shape
    E, _, N = w.shape
    topk = ids.shape[1]
    cfg = get_config(num_tokens)
    table, owner = sort_by_expert(ids, E, cfg["BLOCK_SIZE_M"])
    parts = torch.empty((num_tokens, topk, N), dtype=torch.float32, device=x.device)
    y = torch.empty((num_tokens, N), dtype=torch.float32, device=x.device)
    grouped_gemm[(owner.numel(), N // cfg["BLOCK_SIZE_N"])](x, w, weights, parts, table, owner, num_tokens * topk, N,
                                                           K, TOPK=topk, **cfg, num_warps=4, num_stages=2)
    add_choices[(num_tokens, triton.cdiv(N, 256))](parts, y, N, TOPK=topk, BLOCK=256)
    return y
