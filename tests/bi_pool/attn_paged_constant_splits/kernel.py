import torch
import triton
import triton.language as tl

NUM_KV_SPLITS = 4


@triton.jit
def _stage1(q_ptr, k_ptr, v_ptr, tab_ptr, len_ptr, mid_ptr, scale, tab_stride,
            H: tl.constexpr, HK: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr,
            NUM_KV_SPLITS: tl.constexpr, BLOCK_N: tl.constexpr):
    b = tl.program_id(0)
    kvh = tl.program_id(1)
    sp = tl.program_id(2)
    G: tl.constexpr = H // HK
    g = tl.arange(0, 16)
    d = tl.arange(0, D)
    head = kvh * G + g
    q = tl.load(q_ptr + (b * H + head[:, None]) * D + d[None, :], mask=(g < G)[:, None], other=0.0)
    n = tl.load(len_ptr + b)
    per = tl.cdiv(tl.cdiv(n, NUM_KV_SPLITS), BLOCK_N) * BLOCK_N
    hi = tl.minimum((sp + 1) * per, n)
    m = tl.full((16,), float("-inf"), tl.float32)
    l = tl.zeros((16,), tl.float32)
    acc = tl.zeros((16, D), tl.float32)
    for s0 in range(sp * per, hi, BLOCK_N):
        s = s0 + tl.arange(0, BLOCK_N)
        ok = s < hi
        page = tl.load(tab_ptr + b * tab_stride + s // PAGE, mask=ok, other=0)
        at = ((page * PAGE + s % PAGE) * HK + kvh) * D
        k = tl.load(k_ptr + at[None, :] + d[:, None], mask=ok[None, :], other=0.0)
        x = tl.where(ok[None, :], tl.dot(q, k) * scale, float("-inf"))
        m1 = tl.maximum(m, tl.max(x, 1))
        p = tl.exp(x - m1[:, None])
        f = tl.exp(m - m1)
        v = tl.load(v_ptr + at[:, None] + d[None, :], mask=ok[:, None], other=0.0)
        acc = acc * f[:, None] + tl.dot(p.to(v.dtype), v)
        l = l * f + tl.sum(p, 1)
        m = m1
    base = mid_ptr + ((b * H + head) * NUM_KV_SPLITS + sp) * (D + 2)
    tl.store(base[:, None] + d[None, :], acc, mask=(g < G)[:, None])
    tl.store(base + D, m, mask=g < G)
    tl.store(base + D + 1, l, mask=g < G)


@triton.jit
def _stage2(mid_ptr, o_ptr, D: tl.constexpr, NUM_KV_SPLITS: tl.constexpr):
    row = tl.program_id(0)
    d = tl.arange(0, D)
    m = float("-inf")
    for sp in tl.static_range(NUM_KV_SPLITS):
        m = tl.maximum(m, tl.load(mid_ptr + (row * NUM_KV_SPLITS + sp) * (D + 2) + D))
    l = 0.0
    acc = tl.zeros((D,), tl.float32)
    for sp in tl.static_range(NUM_KV_SPLITS):
        base = mid_ptr + (row * NUM_KV_SPLITS + sp) * (D + 2)
        w = tl.exp(tl.load(base + D) - m)
        l += w * tl.load(base + D + 1)
        acc += w * tl.load(base + d)
    tl.store(o_ptr + row * D + d, acc / l)


def run(q, k_pool, v_pool, block_table, seq_lens):
    batch, H, D = q.shape
    PAGE, HK = k_pool.shape[1], k_pool.shape[2]
    mid = torch.empty((batch * H, NUM_KV_SPLITS, D + 2), dtype=torch.float32, device=q.device)
    _stage1[(batch, HK, NUM_KV_SPLITS)](q, k_pool, v_pool, block_table, seq_lens, mid, D**-0.5, block_table.stride(0),
                                        H=H, HK=HK, D=D, PAGE=PAGE, NUM_KV_SPLITS=NUM_KV_SPLITS, BLOCK_N=32)
    o = torch.empty((batch, H, D), dtype=torch.float32, device=q.device)
    _stage2[(batch * H,)](mid, o, D=D, NUM_KV_SPLITS=NUM_KV_SPLITS)
    return o
