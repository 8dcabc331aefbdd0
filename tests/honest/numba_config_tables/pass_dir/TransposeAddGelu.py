import enum
import math
from dataclasses import dataclass
from typing import Dict

import numba
import numpy as np
import torch


class Walk(enum.Enum):
    TILED = "tiled"
    PLAIN = "plain"


@dataclass(frozen=True)
class KernelConfig:
    """How one launch walks over the transposed operand."""

    tile: int = 32
    walk: Walk = Walk.TILED


CONFIGS: Dict[str, KernelConfig] = {
    "small": KernelConfig(tile=16, walk=Walk.PLAIN),
    "medium": KernelConfig(),
    "large": KernelConfig(tile=64),
}

INV_SQRT2 = np.float32(1.0 / math.sqrt(2.0))
HALF = np.float32(0.5)
ONE = np.float32(1.0)


@numba.njit
def _gelu(v):
    return HALF * v * (ONE + np.float32(math.erf(v * INV_SQRT2)))


@numba.njit
def _tiled(src, other, out, tile):
    rows, cols = out.shape
    for i0 in range(0, rows, tile):
        for j0 in range(0, cols, tile):
            for i in range(i0, min(i0 + tile, rows)):
                for j in range(j0, min(j0 + tile, cols)):
                    out[i, j] = _gelu(src[j, i] + other[i, j])


def pick_config(rows: int, cols: int) -> KernelConfig:
    elements = rows * cols
    if elements < 1024:
        return CONFIGS["small"]
    return CONFIGS["medium"] if elements < 1 << 20 else CONFIGS["large"]


@torch.fx.wrap
def transpose_add_gelu(x, other):
    cols, rows = x.shape
    cfg = pick_config(rows, cols)
    tile = max(rows, cols) if cfg.walk is Walk.PLAIN else cfg.tile
    out = torch.empty_like(x).transpose(0, 1)  # eager's sum keeps the memory order of its first operand
    _tiled(x.numpy(), other.numpy(), out.numpy(), tile)
    return out


def pattern(x, other):
    turned = x.transpose(0, 1)
    added = turned + other
    return torch.nn.functional.gelu(added)


def replacement_args(x, other):
    return (x, other)


def replacement_func():
    return transpose_add_gelu
