import torch

TILE = 16


@torch.no_grad()
def run(x):
    rows, cols = x.shape
    out = x.new_empty(rows)
    tile = x.new_zeros(TILE, cols)
    for start in range(0, rows, TILE):
        n = min(TILE, rows - start)
        tile.zero_()
        tile[:n] = x[start : start + n]
        out[start : start + n] = tile.pow(2).mean(-1)[:n]
    return out
