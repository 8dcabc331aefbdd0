import torch
import triton
import triton.language as tl

TILE_S = 128


@triton.jit
def seq_tile_sum(x, ws, S, D, T, TILE_S: tl.constexpr, BD: tl.constexpr):
    b = tl.program_id(0)
    t = tl.program_id(1)
    d = tl.arange(0, BD)
    acc = tl.zeros([BD], tl.float32)
    for i in range(0, TILE_S):
        s = t * TILE_S + i
        acc += tl.load(x + (b * S + s) * D + d, mask=(d < D) & (s < S), other=0.0).to(tl.float32)
    tl.store(ws + (b * T + t) * D + d, acc, mask=d < D)


@triton.jit
def seq_tile_mean(ws, y, S, D, T, BD: tl.constexpr):
    b = tl.program_id(0)
    d = tl.arange(0, BD)
    acc = tl.zeros([BD], tl.float32)
    for t in range(0, T):
        acc += tl.load(ws + (b * T + t) * D + d, mask=d < D, other=0.0)
    tl.store(y + b * D + d, acc / S, mask=d < D)


def run(hidden):
    num_seqs, seq_len, dim = hidden.shape
    num_partitions = triton.cdiv(seq_len, TILE_S)
    ws = torch.empty((num_seqs, num_partitions, dim), device=hidden.device, dtype=torch.float32)
    out = torch.empty((num_seqs, dim), device=hidden.device, dtype=torch.float32)
    bd = triton.next_power_of_2(dim)
    seq_tile_sum[(num_seqs, num_partitions)](hidden, ws, seq_len, dim, num_partitions, TILE_S=TILE_S, BD=bd)
    seq_tile_mean[(num_seqs,)](ws, out, seq_len, dim, num_partitions, BD=bd)
    return out
