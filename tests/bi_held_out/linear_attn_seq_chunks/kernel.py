"""Chunked causal linear attention, chunk length from the sequence length; three passes."""
import torch
import triton
import triton.language as tl


@triton.jit
def chunk_sums(K, V, S, T, NT, DK: tl.constexpr, DV: tl.constexpr, BT: tl.constexpr):
    bh = tl.program_id(0)
    c = tl.program_id(1)
    t = c * BT + tl.arange(0, BT)
    a = tl.arange(0, DK)
    b = tl.arange(0, DV)
    k = tl.load(K + (bh * T + t[None, :]) * DK + a[:, None], mask=(t < T)[None, :], other=0.0)
    v = tl.load(V + (bh * T + t[:, None]) * DV + b[None, :], mask=(t < T)[:, None], other=0.0)
    tl.store(S + ((bh * NT + c) * DK + a[:, None]) * DV + b[None, :], tl.dot(k, v))


@triton.jit
def prefix_sums(S, NT, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    """In place and exclusive: slot c becomes the sum of the slots before it."""
    bh = tl.program_id(0)
    e = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    run_sum = tl.zeros([BLOCK], tl.float32)
    for c in range(NT):
        at = S + (bh * NT + c) * SIZE + e
        here = tl.load(at)
        tl.store(at, run_sum)
        run_sum += here


@triton.jit
def chunk_outputs(Q, K, V, S, O, T, NT, scale, DK: tl.constexpr, DV: tl.constexpr, BT: tl.constexpr):
    bh = tl.program_id(0)
    c = tl.program_id(1)
    i = tl.arange(0, BT)
    t = c * BT + i
    a = tl.arange(0, DK)
    b = tl.arange(0, DV)
    ok = (t < T)[:, None]
    q = tl.load(Q + (bh * T + t[:, None]) * DK + a[None, :], mask=ok, other=0.0)
    k = tl.load(K + (bh * T + t[:, None]) * DK + a[None, :], mask=ok, other=0.0)
    v = tl.load(V + (bh * T + t[:, None]) * DV + b[None, :], mask=ok, other=0.0)
    s = tl.load(S + ((bh * NT + c) * DK + a[:, None]) * DV + b[None, :])
    w = tl.where(i[:, None] >= i[None, :], tl.dot(q, tl.trans(k)), 0.0)
    o = tl.dot(w.to(v.dtype), v)
    o += tl.dot(q, s.to(q.dtype))
    tl.store(O + (bh * T + t[:, None]) * DV + b[None, :], o * scale, mask=ok)


def run(q, k, v):
    B, H, T, DK = q.shape
    DV = v.shape[-1]
    BT = min(64, max(16, triton.next_power_of_2(T)))
    NT = triton.cdiv(T, BT)
    states = torch.empty((B * H, NT, DK, DV), dtype=torch.float32, device=q.device)
    o = torch.empty((B, H, T, DV), dtype=torch.float32, device=q.device)
    lanes = B * H
    chunk_sums[(lanes, NT)](k, v, states, T, NT, DK=DK, DV=DV, BT=BT, num_warps=4)
    size = DK * DV
    # purely elementwise over the state, so this one may follow the occupancy
    block = 1024 if lanes >= 132 else 256
    prefix_sums[(lanes, size // block)](states, NT, SIZE=size, BLOCK=block)
    chunk_outputs[(lanes, NT)](q, k, v, states, o, T, NT, DK**-0.5, DK=DK, DV=DV, BT=BT, num_warps=4)
    return o
