"""Mean pooling of an embedding model: average of the first `length` token states of every sequence."""

import torch
import triton
import triton.language as tl

BLOCK_D = 64


@triton.jit
def pool_partial(x_ptr, len_ptr, part_ptr, S, D, split_len, BLOCK_D: tl.constexpr):
    b = tl.program_id(0)
    split = tl.program_id(1)
    d = tl.program_id(2) * BLOCK_D + tl.arange(0, BLOCK_D)
    stop = tl.minimum(tl.load(len_ptr + b), (split + 1) * split_len)
    acc = tl.zeros([BLOCK_D], tl.float32)
    for s in range(split * split_len, stop):
        acc += tl.load(x_ptr + (b * S + s) * D + d, mask=d < D, other=0.0).to(tl.float32)
    tl.store(part_ptr + (b * tl.num_programs(1) + split) * D + d, acc, mask=d < D)


@triton.jit
def pool_finish(part_ptr, len_ptr, out_ptr, D, splits, BLOCK_D: tl.constexpr):
    b = tl.program_id(0)
    d = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
    acc = tl.zeros([BLOCK_D], tl.float32)
    for s in range(splits):
        acc += tl.load(part_ptr + (b * splits + s) * D + d, mask=d < D, other=0.0)
    tl.store(out_ptr + b * D + d, acc / tl.load(len_ptr + b), mask=d < D)


def run(x, lengths):
    num_seqs, max_len, dim = x.shape
    tiles = triton.cdiv(dim, BLOCK_D)
    num_sms = torch.cuda.get_device_properties(x.device).multi_processor_count
    num_partitions = max(1, min(16, 4 * num_sms // (num_seqs * tiles)))
    partial = torch.empty((num_seqs, num_partitions, dim), device=x.device, dtype=torch.float32)
    out = torch.empty((num_seqs, dim), device=x.device, dtype=torch.float32)
    pool_partial[(num_seqs, num_partitions, tiles)](
        x, lengths, partial, max_len, dim, triton.cdiv(max_len, num_partitions), BLOCK_D=BLOCK_D
    )
    pool_finish[(num_seqs, tiles)](partial, lengths, out, dim, num_partitions, BLOCK_D=BLOCK_D)
    return out
