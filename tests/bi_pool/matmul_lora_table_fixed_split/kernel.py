import torch
import triton
import triton.language as tl

COMMON = {"BLOCK_M": 16, "BLOCK_K": 64, "SPLIT_K": 4}
PER_BUCKET = {
    16: {**COMMON, "BLOCK_N": 32, "num_stages": 4},
    64: {**COMMON, "BLOCK_N": 64, "num_stages": 3},
    1024: {**COMMON, "BLOCK_N": 128, "num_stages": 2},
}


def config_for(m):
    for limit, cfg in PER_BUCKET.items():
        if m <= limit:
            return cfg
    raise ValueError(f"no configuration for {m} rows")


@triton.jit
def part_mm(x_ptr, w_ptr, p_ptr, M, N, K,
            BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT_K: tl.constexpr):
    rm = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    sk = tl.program_id(2)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k0 in range(0, K // SPLIT_K, BLOCK_K):
        rk = sk * (K // SPLIT_K) + k0 + tl.arange(0, BLOCK_K)
        x = tl.load(x_ptr + rm[:, None] * K + rk[None, :], mask=rm[:, None] < M, other=0.0)
        w = tl.load(w_ptr + rk[:, None] * N + rn[None, :])
        acc = tl.dot(x, w, acc)
    tl.store(p_ptr + (sk * M + rm[:, None]) * N + rn[None, :], acc, mask=rm[:, None] < M)


@triton.jit
def add_parts(p_ptr, y_ptr, MN, SPLIT_K: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.load(p_ptr + i, mask=i < MN)
    for s in tl.static_range(1, SPLIT_K):
        acc += tl.load(p_ptr + s * MN + i, mask=i < MN)
    tl.store(y_ptr + i, acc, mask=i < MN)


def run(x, w):
    M, K = x.shape
    N = w.shape[1]
    cfg = config_for(M)
    parts = torch.empty((cfg["SPLIT_K"], M, N), dtype=torch.float32, device=x.device)
    grid = (triton.cdiv(M, cfg["BLOCK_M"]), triton.cdiv(N, cfg["BLOCK_N"]), cfg["SPLIT_K"])
    part_mm[grid](x, w, parts, M, N, K, **cfg)
    y = torch.empty((M, N), dtype=torch.float32, device=x.device)
    add_parts[(triton.cdiv(M * N, 1024),)](parts, y, M * N, SPLIT_K=cfg["SPLIT_K"], BLOCK=1024)
    return y
