import torch
import triton
import triton.language as tl

_SQRT_HALF = tl.constexpr(0.7071067811865476)


@triton.jit
def geglu_persistent(gate, up, out, n, num_tiles, BLOCK: tl.constexpr):
    for tile in tl.range(tl.program_id(0), num_tiles, tl.num_programs(0), num_stages=2):
        at = tile * BLOCK + tl.arange(0, BLOCK)
        mask = at < n
        g = tl.load(gate + at, mask=mask)
        u = tl.load(up + at, mask=mask)
        g = 0.5 * g * (1.0 + tl.erf(g * _SQRT_HALF))
        tl.store(out + at, g * u, mask=mask)


def num_programs(device: torch.device, tiles: int) -> int:
    sms = torch.cuda.get_device_properties(device).multi_processor_count
    return min(tiles, 4 * sms)


@torch.fx.wrap
def geglu(gate, up):
    out = torch.empty_like(gate)
    n = gate.numel()
    BLOCK = 2048
    tiles = triton.cdiv(n, BLOCK)
    geglu_persistent[(num_programs(gate.device, tiles),)](gate, up, out, n, tiles, BLOCK=BLOCK, num_warps=8)
    return out


def pattern(gate, up):
    activated = torch.nn.functional.gelu(gate)
    return activated * up


def replacement_args(gate, up):
    return (gate, up)


def replacement_func():
    return geglu
