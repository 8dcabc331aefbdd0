import torch
import triton
import triton.language as tl


@triton.jit
def _pool(cu_seqlens, x_ptr, out_ptr, D, BLOCK_D: tl.constexpr):
    i = tl.program_id(0)
    d = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
    bos = tl.load(cu_seqlens + i)
    eos = tl.load(cu_seqlens + i + 1)
    acc = tl.zeros([BLOCK_D], tl.float32)
    for t in range(bos, eos):
        acc += tl.load(x_ptr + t * D + d, mask=d < D, other=0.0).to(tl.float32)
    tl.store(out_ptr + i * D + d, acc / tl.maximum(eos - bos, 1), mask=d < D)


def run(cu_seqlens, x):
    total_tokens, D = x.shape
    if total_tokens == 0:
        raise ValueError("no tokens to pool")
    N = len(cu_seqlens) - 1
    out = torch.empty(N, D, device=x.device, dtype=torch.float32)
    _pool[(N, triton.cdiv(D, 128))](cu_seqlens, x, out, D, BLOCK_D=128)
    return out
