"""Final linear-attention state of packed sequences; chunks are numbered within each sequence (see chunks.py)."""
import torch
import triton
import triton.language as tl

from chunks import chunk_index, chunk_starts

BT = 64


@triton.jit
def local_state(K, V, INDEX, CU, PART, H: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, BT: tl.constexpr):
    job = tl.program_id(0)
    h = tl.program_id(1)
    seq = tl.load(INDEX + job * 2)
    c = tl.load(INDEX + job * 2 + 1)
    first = tl.load(CU + seq)
    stop = tl.load(CU + seq + 1)
    t = first + c * BT + tl.arange(0, BT)
    a = tl.arange(0, DK)
    b = tl.arange(0, DV)
    k = tl.load(K + (t[None, :] * H + h) * DK + a[:, None], mask=(t < stop)[None, :], other=0.0)
    v = tl.load(V + (t[:, None] * H + h) * DV + b[None, :], mask=(t < stop)[:, None], other=0.0)
    tl.store(PART + ((job * H + h) * DK + a[:, None]) * DV + b[None, :], tl.dot(k, v))


@triton.jit
def carry(PART, STARTS, DECAY, S, H: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    seq = tl.program_id(0)
    h = tl.program_id(1)
    e = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    g = tl.load(DECAY + h)
    state = tl.zeros([BLOCK], tl.float32)
    for job in range(tl.load(STARTS + seq), tl.load(STARTS + seq + 1)):
        state = state * g + tl.load(PART + (job * H + h) * SIZE + e)
    tl.store(S + (seq * H + h) * SIZE + e, state)


def run(k, v, cu_seqlens, decay):
    total, H, DK = k.shape
    DV = v.shape[-1]
    num_seqs = cu_seqlens.shape[0] - 1
    index = chunk_index(cu_seqlens, BT)
    starts = chunk_starts(cu_seqlens, BT)
    num_chunks = index.shape[0]
    part = torch.empty((num_chunks, H, DK, DV), dtype=torch.float32, device=k.device)
    state = torch.empty((num_seqs, H, DK, DV), dtype=torch.float32, device=k.device)
    local_state[(num_chunks, H)](k, v, index, cu_seqlens, part, H=H, DK=DK, DV=DV, BT=BT, num_warps=4)
    carry[(num_seqs, H, DK * DV // 512)](part, starts, decay, state, H=H, SIZE=DK * DV, BLOCK=512)
    return state
