import torch
import triton
import triton.language as tl


@triton.jit
def _tile_moments(x_ptr, mean_ptr, m2_ptr, N, T, TILE: tl.constexpr):
    row = tl.program_id(0)
    t = tl.program_id(1)
    c = t * TILE + tl.arange(0, TILE)
    x = tl.load(x_ptr + row * N + c)
    mu = tl.sum(x, axis=0) / TILE
    d = x - mu
    tl.store(mean_ptr + row * T + t, mu)
    tl.store(m2_ptr + row * T + t, tl.sum(d * d, axis=0))


@triton.jit
def _finish(x_ptr, w_ptr, b_ptr, mean_ptr, m2_ptr, y_ptr, N, eps, TILE: tl.constexpr, T: tl.constexpr):
    row = tl.program_id(0)
    c = tl.program_id(1) * TILE + tl.arange(0, TILE)
    k = tl.arange(0, T)
    means = tl.load(mean_ptr + row * T + k)
    m2s = tl.load(m2_ptr + row * T + k)
    mean = tl.sum(means, axis=0) / T
    spread = means - mean
    var = (tl.sum(m2s, axis=0) + TILE * tl.sum(spread * spread, axis=0)) / N
    x = tl.load(x_ptr + row * N + c)
    tl.store(y_ptr + row * N + c, (x - mean) * tl.rsqrt(var + eps) * tl.load(w_ptr + c) + tl.load(b_ptr + c))


def make_layernorm(target_programs=1024, eps=1e-5):
    def layernorm(x, w, b):
        n = x.shape[-1]
        rows = x.numel() // n

        def pick_tile():
            tile = n
            while rows * (n // tile) < target_programs and tile > 256:
                tile //= 2
            return tile

        tile = pick_tile()
        tiles = n // tile
        means = x.new_empty(rows, tiles)
        m2s = x.new_empty(rows, tiles)
        y = torch.empty_like(x)
        _tile_moments[(rows, tiles)](x, means, m2s, n, tiles, TILE=tile)
        _finish[(rows, tiles)](x, w, b, means, m2s, y, n, eps, TILE=tile, T=tiles)
        return y

    return layernorm


layernorm = make_layernorm()


def run(x, weight, bias):
    return layernorm(x, weight, bias)
