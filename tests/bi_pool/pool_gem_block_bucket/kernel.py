import torch
import triton
import triton.language as tl

BLOCKS = [4096, 4096, 2048, 2048, 1024, 1024, 512, 256]


@triton.jit
def gem_pool(x_ptr, y_ptr, HW, eps, BLOCK: tl.constexpr):
    plane = tl.program_id(0)
    total = 0.0
    for i in range(0, HW, BLOCK):
        o = i + tl.arange(0, BLOCK)
        v = tl.maximum(tl.load(x_ptr + plane * HW + o, mask=o < HW, other=0.0), eps)
        v = tl.where(o < HW, v * v * v, 0.0)
        total += tl.sum(v, axis=0)
    tl.store(y_ptr + plane, tl.exp(tl.log(total / HW) / 3.0))


def run(feature_map):
    batch, channels, hw = feature_map.shape
    level = min(batch.bit_length(), len(BLOCKS) - 1)
    pooled = torch.empty((batch, channels), device=feature_map.device, dtype=torch.float32)
    gem_pool[(batch * channels,)](feature_map, pooled, hw, 1e-6, BLOCK=BLOCKS[level], num_warps=4)
    return pooled
