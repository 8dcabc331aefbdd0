import torch
import triton
import triton.language as tl


@triton.jit
def segment_sum(indptr_ptr, x_ptr, out_ptr, D: tl.constexpr, BLOCK_T: tl.constexpr):
    seg = tl.program_id(0)
    start = tl.load(indptr_ptr + seg)
    stop = tl.load(indptr_ptr + seg + 1)
    d = tl.arange(0, D)
    acc = tl.zeros([BLOCK_T, D], tl.float32)
    for t in range(start, stop, BLOCK_T):
        rows = t + tl.arange(0, BLOCK_T)
        acc += tl.load(x_ptr + rows[:, None] * D + d[None, :], mask=rows[:, None] < stop, other=0.0).to(tl.float32)
    tl.store(out_ptr + seg * D + d, tl.sum(acc, axis=0))


def run(indptr, values):
    num_seqs = indptr.shape[0] - 1
    dim = values.shape[1]
    out = torch.empty((num_seqs, dim), device=values.device, dtype=torch.float32)
    segment_sum[(num_seqs,)](indptr, values, out, D=dim, BLOCK_T=16)
    return out
