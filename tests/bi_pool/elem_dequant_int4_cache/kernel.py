import torch
import triton
import triton.language as tl

GROUP = 128


@triton.jit
def unpack_int4(packed_ptr, scale_ptr, out_ptr, n_values, WORDS, GROUP: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ok = i < n_values
    word = tl.load(packed_ptr + i // 8, mask=ok, other=0)
    nibble = (word >> ((i % 8) * 4)) & 0xF
    scale = tl.load(scale_ptr + i // GROUP, mask=ok, other=0.0).to(tl.float32)
    tl.store(out_ptr + i, (nibble - 8).to(tl.float32) * scale, mask=ok)


def run(packed, scales):
    bs, words = packed.shape
    out = torch.empty((bs, words * 8), device=packed.device, dtype=torch.float32)
    n = out.numel()
    unpack_int4[(triton.cdiv(n, 1024),)](packed, scales, out, n, words, GROUP=GROUP, BLOCK=1024)
    return out
