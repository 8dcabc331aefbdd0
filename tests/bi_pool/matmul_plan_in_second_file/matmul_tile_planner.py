"""Tile shapes for the skinny GEMM."""

from dataclasses import dataclass

MIN_K_PER_PART = 128
TARGET_PROGRAMS = 64


@dataclass(frozen=True)
class Tiles:
    block_k: int
    k_parts: int


def _floor_pow2(x: int) -> int:
    return 1 << (max(1, x).bit_length() - 1)


def pick_tiles(num_tokens: int, hidden: int) -> Tiles:
    row_tiles = -(-num_tokens // 16)
    parts = _floor_pow2(TARGET_PROGRAMS // (4 * row_tiles))
    return Tiles(block_k=64, k_parts=max(1, min(parts, hidden // MIN_K_PER_PART)))
