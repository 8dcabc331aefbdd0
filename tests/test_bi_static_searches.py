"""Static batch-invariance analysis: rows that a kernel looks up, swapped axes of a grid, second passes."""

from __future__ import annotations

import pytest

from tests.static_cases import Case, check, triton

BISECT = """
    lo = tile * 0
    hi = lo + num_seqs
    while lo + 1 < hi:
        mid = (lo + hi) // 2
        if tl.load(CU + mid) // BLOCK_M + mid <= tile:
            lo = mid
        else:
            hi = mid
    seq = lo
"""
WHERE = """
    lo = 0
    hi = num_seqs
    for _ in range(32):
        mid = (lo + hi) // 2
        below = tl.load(CU + mid) <= tile
        lo = tl.where(below, mid, lo)
        hi = tl.where(below, hi, mid)
    seq = lo
"""
UPWARDS = """
    seq = 0
    while (seq + 1 < num_seqs) & (tl.load(CU + seq + 1) <= tile):
        seq += 1
"""
DOWNWARDS = """
    seq = num_seqs - 1
    while tl.load(CU + seq) > tile:
        seq -= 1
"""
COUNTED = """
    seq = 0
    for i in range(num_seqs - 1, -1, -1):
        start = tl.load(CU + i)
        if start > tile:
            seq = i
"""
HALVED = """
    seq = num_seqs
    while seq * 4 > num_seqs:
        seq = seq - 1
"""


def varlen(search: str, helper: bool = False) -> str:
    """Sums of packed rows, a program a tile, which looks its row up."""
    body = "    seq = find(CU, num_seqs, tile, BLOCK_M)\n" if helper else search
    find = f"@triton.jit\ndef find(CU, num_seqs, tile, BLOCK_M: tl.constexpr):{search}    return seq\n\n\n"
    return triton(
        (find if helper else "")
        + f"""@triton.jit
def tiles_kernel(X, Y, CU, num_seqs, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK: tl.constexpr):
    tile = tl.program_id(0)
{body}
    first = tl.load(CU + seq)
    length = tl.load(CU + seq + 1) - first
    local = tile - (first // BLOCK_M + seq)
    if local * BLOCK_M >= length:
        return
    acc = tl.zeros([BLOCK], tl.float32)
    for n0 in range(0, tl.minimum((local + 1) * BLOCK_M, length), BLOCK):  # loop
        cols = n0 + tl.arange(0, BLOCK)
        acc += tl.load(X + first + cols, mask=cols < (local + 1) * BLOCK_M, other=0.0)
    tl.store(Y + tile, tl.sum(acc, axis=0))


def run(x, cu_seqlens):
    num_seqs = cu_seqlens.numel() - 1
    y = torch.empty(x.shape[0], device=x.device)
    tiles_kernel[(x.shape[0] // 64 + num_seqs,)](x, y, cu_seqlens, num_seqs, D=64, BLOCK_M=64, BLOCK=32)
    return y
"""
    )


CUDA = """
#include <torch/extension.h>
__device__ int find_seq(const int* cu, int num_seqs, int tile) {
  int lo = 0, hi = num_seqs;
  while (hi - lo > 1) {
    int mid = (lo + hi) >> 1;
    if (cu[mid] / 64 + mid <= tile) lo = mid; else hi = mid;
  }
  return lo;
}
__global__ void k(const float* x, float* y, const int* cu, int num_seqs, int d) {
  int seq = find_seq(cu, num_seqs, blockIdx.x);
  int first = cu[seq];
  int len = cu[seq + 1] - first;
  int local = blockIdx.x - (first / 64 + seq);
  if (local * 64 >= len) return;
  float acc = 0.f;
  int end = min((local + 1) * 64, len);
  for (int t = local * 64; t < end; ++t) acc += x[(first + t) * d + threadIdx.x];
  y[blockIdx.x * d + threadIdx.x] = acc;
}
torch::Tensor run(torch::Tensor x, torch::Tensor cu) {
  int num_seqs = cu.size(0) - 1;
  auto y = torch::zeros({x.size(0) / 64 + num_seqs, x.size(1)}, x.options());
  int tiles = x.size(0) / 64 + num_seqs;
  k<<<tiles, 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), cu.data_ptr<int>(), num_seqs, x.size(1));
  return y;
}
"""

AXES = """@triton.jit
def cut_kernel(x_ptr, part_ptr, n, per, BLOCK: tl.constexpr, SWAP: tl.constexpr):
{places}
    acc = tl.zeros([BLOCK], tl.float32)
    for start in range(cut * per, (cut + 1) * per, BLOCK):  # loop
        cols = start + tl.arange(0, BLOCK)
        acc += tl.load(x_ptr + row * n + cols, mask=cols < n, other=0.0)
    tl.store(part_ptr + row * 8 + cut, tl.sum(acc, axis=0))


def run(x):
    rows, n = x.shape
    part = torch.empty((rows, 8), device=x.device)
    swap = rows <= 64
    grid = (8, rows) if swap else (rows, 8)
    cut_kernel[grid](x, part, n, triton.cdiv(n, 8), BLOCK=64, SWAP=swap)
    return part
"""


def axes(places: str) -> str:
    return triton(AXES.format(places=places))


PASSES = """@triton.jit
def row_sum(x_ptr, start, stop, BLOCK: tl.constexpr):
    acc = 0.0
    for at in range(start, stop, BLOCK):
        cols = at + tl.arange(0, BLOCK)
        acc += tl.sum(tl.load(x_ptr + cols, mask=cols < stop, other=0.0), axis=0)
    return acc


@triton.jit
def single_pass(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    tl.store(y_ptr + row, row_sum(x_ptr + row * n, 0, n, BLOCK))


@triton.jit
def partitioned(x_ptr, tmp_ptr, n, PART: tl.constexpr, BLOCK: tl.constexpr):
    row, part = tl.program_id(0), tl.program_id(1)
    tl.store(tmp_ptr + row * 8 + part, row_sum(x_ptr + row * n, part * PART, (part + 1) * PART, BLOCK))


@triton.jit
def fold(tmp_ptr, y_ptr):
    row = tl.program_id(0)
    tl.store(y_ptr + row, tl.sum(tl.load(tmp_ptr + row * 8 + tl.arange(0, 8)), axis=0))


def run(x):
    num_seqs, n = x.shape
    y = torch.empty(num_seqs, device=x.device)
    args, sizes = (x,), (n,)
    if n <= 64 or {choice}:  # choice
        single_pass[(num_seqs,)](*args, y, *sizes, 64)
        return y
    tmp = torch.empty((num_seqs, 8), device=x.device)
    partitioned[(num_seqs, 8)](*args, tmp, *sizes, 512, 64)
    fold[(num_seqs,)](tmp, y)
    return y
"""

CASES = [
    Case("a row found by bisection", varlen(BISECT), []),
    Case("a row found by bisection in a helper", varlen(BISECT, helper=True), []),
    Case("a row found by bisection with where", varlen(WHERE), []),
    Case("a row found from the first on", varlen(UPWARDS), []),
    Case("a row found from the last on", varlen(DOWNWARDS), []),
    Case("a row found counting down", varlen(COUNTED), []),
    Case("a row found by bisection in CUDA", {"kernel.cu": CUDA}, [], "attention.prefill"),
    Case(
        "a number of rows beside a search",
        varlen(BISECT.replace("hi = mid\n", "hi = mid\n        share = num_seqs * 2\n") + "    seq = lo + share\n"),
        [("work partitioning", "num_seqs of tiles_kernel", "loop")],
    ),
    Case(
        "a share of the rows that nothing looks up",
        varlen(HALVED),
        [("work partitioning", "num_seqs of tiles_kernel", "loop")],
    ),
    Case(
        "swapped axes of the grid",
        axes(
            "    if SWAP:\n        cut = tl.program_id(0)\n        row = tl.program_id(1)\n"
            "    else:\n        row = tl.program_id(0)\n        cut = tl.program_id(1)"
        ),
        [],
    ),
    Case(
        "swapped axes in one expression",
        axes(
            "    cut = tl.program_id(0) if SWAP else tl.program_id(1)\n"
            "    row = tl.program_id(1) if SWAP else tl.program_id(0)"
        ),
        [],
    ),
    Case(
        "parts on one way only",
        axes("    row = tl.program_id(1)\n    if SWAP:\n        cut = tl.program_id(0)\n    else:\n        cut = 0"),
        [("work partitioning", "SWAP of cut_kernel", "loop")],
    ),
    Case(
        "a second pass that adds up as the first",
        triton(PASSES.replace("{choice}", "num_seqs * 8 > 256")),
        [("algorithm selection", "choice of kernel", "choice")],
        "attention.paged",
    ),
    Case("a second pass by the length of the rows", triton(PASSES.replace("{choice}", "n > 4096")), []),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_searches(case: Case) -> None:
    check(case)
