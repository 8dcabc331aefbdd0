import torch
import triton
import triton.language as tl


@triton.jit
def rope_kernel(x_ptr, pos_ptr, cache_ptr, y_ptr, n_tokens, H: tl.constexpr, HALF: tl.constexpr, BLOCK_M: tl.constexpr):
    t = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    ok = (t < n_tokens)[:, None]
    j = tl.arange(0, HALF)[None, :]
    pos = tl.load(pos_ptr + t, mask=t < n_tokens, other=0)[:, None]
    cos = tl.load(cache_ptr + pos * (2 * HALF) + j)
    sin = tl.load(cache_ptr + pos * (2 * HALF) + HALF + j)
    for h in tl.static_range(H):
        base = (t[:, None] * H + h) * (2 * HALF) + j
        a = tl.load(x_ptr + base, mask=ok, other=0.0).to(tl.float32)
        b = tl.load(x_ptr + base + HALF, mask=ok, other=0.0).to(tl.float32)
        tl.store(y_ptr + base, a * cos - b * sin, mask=ok)
        tl.store(y_ptr + base + HALF, b * cos + a * sin, mask=ok)


def run(x, positions, cos_sin_cache):
    num_tokens, heads, dim = x.shape
    block_m = max(1, min(16, triton.next_power_of_2(triton.cdiv(num_tokens, 8))))
    y = torch.empty(x.shape, device=x.device, dtype=torch.float32)
    rope_kernel[(triton.cdiv(num_tokens, block_m),)](
        x, positions, cos_sin_cache, y, num_tokens, H=heads, HALF=dim // 2, BLOCK_M=block_m
    )
    return y
