import functools

import torch
import triton
import triton.language as tl

MAX_POS = 2048
BASE = 10000.0


@functools.lru_cache(maxsize=8)
def _inv_freq(half, device):
    return (BASE ** (-torch.arange(half, dtype=torch.float64) / half)).to(device=device, dtype=torch.float32)


@functools.lru_cache(maxsize=8)
def _table(half, device):
    inv = BASE ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = torch.arange(MAX_POS, dtype=torch.float64)[:, None] * inv
    return torch.cat([angle.cos(), angle.sin()], dim=1).to(device=device, dtype=torch.float16)


@triton.jit
def _rope(x_ptr, pos_ptr, aux_ptr, y_ptr, HEADS, HALF: tl.constexpr, USE_TABLE: tl.constexpr):
    token = tl.program_id(0)
    head = tl.program_id(1)
    j = tl.arange(0, HALF)
    pos = tl.load(pos_ptr + token)
    if USE_TABLE:
        cos = tl.load(aux_ptr + pos * 2 * HALF + j).to(tl.float32)
        sin = tl.load(aux_ptr + pos * 2 * HALF + HALF + j).to(tl.float32)
    else:
        angle = pos.to(tl.float32) * tl.load(aux_ptr + j)
        cos = tl.cos(angle)
        sin = tl.sin(angle)
    base = (token * HEADS + head) * 2 * HALF
    a = tl.load(x_ptr + base + j).to(tl.float32)
    b = tl.load(x_ptr + base + HALF + j).to(tl.float32)
    tl.store(y_ptr + base + j, a * cos - b * sin)
    tl.store(y_ptr + base + HALF + j, b * cos + a * sin)


def run(x, positions):
    num_tokens, heads, dim = x.shape
    half = dim // 2
    y = torch.empty(x.shape, device=x.device, dtype=torch.float32)
    use_table = num_tokens > 16
    aux = _table(half, x.device) if use_table else _inv_freq(half, x.device)
    _rope[(num_tokens, heads)](x, positions, aux, y, heads, HALF=half, USE_TABLE=use_table, num_warps=1)
    return y
