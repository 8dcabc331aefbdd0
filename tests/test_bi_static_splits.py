"""Static batch-invariance analysis: split counts and chunk sizes, from the batch symbol to the loop that adds up."""

from __future__ import annotations

import pytest

from tests.static_cases import Case, check, triton

DECODE = triton("""
@triton.jit
def split_kernel(Q, K, V, O, L, lens, sm_scale, S, CHUNK, D: tl.constexpr, BLOCK_N: tl.constexpr):
    pid_b = tl.program_id(0)
    pid_s = tl.program_id(1)
    seqlen = tl.load(lens + pid_b)
    offs_d = tl.arange(0, D)
    q = tl.load(Q + pid_b * D + offs_d)
    lo = pid_s * CHUNK
    hi = tl.minimum(lo + CHUNK, seqlen)
    m = -float("inf")
    l = 0.0
    acc = tl.zeros([D], dtype=tl.float32)
    for start in range(lo, hi, BLOCK_N):  # loop
        offs_n = start + tl.arange(0, BLOCK_N)
        k = tl.load(K + pid_b * S * D + offs_n[:, None] * D + offs_d[None, :], mask=(offs_n < hi)[:, None], other=0.0)
        qk = tl.sum(q[None, :] * k, axis=1) * sm_scale
        qk = tl.where(offs_n < hi, qk, -float("inf"))
        m_new = tl.maximum(m, tl.max(qk, axis=0))
        alpha = tl.exp(m - m_new)
        p = tl.exp(qk - m_new)
        v = tl.load(V + pid_b * S * D + offs_n[:, None] * D + offs_d[None, :], mask=(offs_n < hi)[:, None], other=0.0)
        acc = acc * alpha + tl.sum(p[:, None] * v, axis=0)
        l = l * alpha + tl.sum(p, axis=0)
        m = m_new
    tl.store(O + (pid_b * tl.num_programs(1) + pid_s) * D + offs_d, acc / l)
    tl.store(L + pid_b * tl.num_programs(1) + pid_s, m + tl.log(l))


@triton.jit
def combine_kernel(O, L, out, n_parts, D: tl.constexpr):
    pid_b = tl.program_id(0)
    offs_d = tl.arange(0, D)
    m = -float("inf")
    for i in range(n_parts):
        m = tl.maximum(m, tl.load(L + pid_b * n_parts + i))
    acc = tl.zeros([D], dtype=tl.float32)
    total = 0.0
    for i in range(n_parts):  # combine
        w = tl.exp(tl.load(L + pid_b * n_parts + i) - m)
        acc += w * tl.load(O + (pid_b * n_parts + i) * D + offs_d)
        total += w
    tl.store(out + pid_b * D + offs_d, acc / total)
""")

LAUNCH = """
    B, S, D = k.shape
    parts = torch.empty((B, num_splits, D), device=q.device, dtype=torch.float32)
    lse = torch.empty((B, num_splits), device=q.device, dtype=torch.float32)
    out = torch.empty_like(q)
    chunk = triton.cdiv(S, num_splits)
    split_kernel[(B, num_splits)](q, k, v, parts, lse, lens, 0.1, S, chunk, D=D, BLOCK_N=64)
    combine_kernel[(B,)](parts, lse, out, num_splits, D=D)
    return out
"""


def decode(body: str) -> str:
    """A split-KV decode whose number of splits is chosen by `body`."""
    return DECODE + "\n\ndef run(q, k, v, lens):\n" + body + LAUNCH


CASES = [
    Case(
        "splits fill the SMs",
        decode("    num_splits = max(1, min(16, 132 // q.shape[0]))\n"),
        [("work partitioning", "NUM_SPLITS", "loop"), ("work partitioning", "NUM_SPLITS", "combine")],
    ),
    Case("splits from the sequence length", decode("    num_splits = triton.cdiv(k.shape[1], 512)\n"), []),
    Case("a constant number of splits", decode("    num_splits = 8\n"), []),
    Case(
        "splits chosen by an if",
        decode("    if q.shape[0] >= 32:\n        num_splits = 1\n    else:\n        num_splits = 8\n"),
        [("work partitioning", "NUM_SPLITS", "loop")],
    ),
    Case(
        "both ways of the if agree",
        decode("    if q.shape[0] >= 32:\n        num_splits = 4\n    else:\n        num_splits = 4\n"),
        [],
    ),
    Case(
        "a ternary, through a helper with a default",
        "import math\n"
        + decode("    num_splits = pick(len(lens), k.shape[1])\n")
        + "\n\ndef pick(n, length, sms=132):\n    fill = sms / n\n"
        "    return 1 if fill < 2 else min(int(fill), math.ceil(length / 256))\n",
        [("work partitioning", "NUM_SPLITS", "loop")],
    ),
    Case(
        "doubling until the device is full",
        decode(
            "    num_splits = 1\n    while num_splits * q.shape[0] < 132 and num_splits < 16:\n"
            "        num_splits *= 2\n"
        ),
        [("work partitioning", "NUM_SPLITS", "loop")],
    ),
    Case(
        "a table searched with bisect",
        "import bisect\n" + decode("    num_splits = [16, 8, 4, 1][bisect.bisect_left([4, 16, 64], q.shape[0])]\n"),
        [("work partitioning", "NUM_SPLITS", "loop")],
    ),
    Case(
        "a table in a loop with break",
        decode(
            "    for limit, n in ((4, 16), (16, 8), (64, 4)):\n        if q.shape[0] <= limit:\n            break\n"
            "    num_splits = n\n"
        ),
        [("work partitioning", "NUM_SPLITS", "loop")],
    ),
    Case(
        "the first entry of a generator",
        decode("    num_splits = next((n for limit, n in ((4, 16), (64, 4)) if q.shape[0] <= limit), 1)\n"),
        [("work partitioning", "NUM_SPLITS", "loop")],
    ),
    Case(
        "rows of a folded view",
        decode("    rows = q.view(-1, 128).shape[0]\n    num_splits = 8 if rows < 64 else 2\n"),
        [("work partitioning", "NUM_SPLITS", "loop")],
    ),
    Case(
        "hidden size by division", decode("    d = q.numel() // q.shape[0]\n    num_splits = 8 if d < 64 else 2\n"), []
    ),
    Case(
        "the mean length of the batch",
        decode("    num_splits = 8 if lens.float().mean().item() > 1024 else 2\n"),
        [("work partitioning", "NUM_SPLITS", "loop")],
    ),
    Case(
        "the longest row of the batch",
        decode("    num_splits = triton.cdiv(int(lens.max()), 512)\n"),
        [("work partitioning", "NUM_SPLITS", "loop")],
    ),
    Case(
        "equal shares of all tokens",
        decode("    num_splits = 8\n    total = int(lens.sum())\n    k = k[:, :total // 8]\n"),
        [("work partitioning", "NUM_SPLITS", "loop")],
    ),
    Case("computed and not used", decode("    unused = 132 // q.shape[0]\n    num_splits = 8\n"), []),
    Case(
        "behind a switch that is off",
        "ADAPTIVE = False\n" + decode("    num_splits = 8\n    if ADAPTIVE:\n        num_splits = 132 // q.shape[0]\n"),
        [],
    ),
    Case(
        "kept in an object",
        decode("    num_splits = Plan(q).splits\n")
        + "\n\nclass Plan:\n    def __init__(self, q):\n        self.batch = q.size(0)\n\n"
        "    @property\n    def splits(self):\n        return max(1, 64 // self.batch)\n",
        [("work partitioning", "NUM_SPLITS", "loop")],
    ),
    Case(
        "through functools.partial and lru_cache",
        "import functools\n\n\n@functools.lru_cache(maxsize=None)\ndef rule(sms, n):\n    return max(1, sms // n)\n"
        "\n\n"
        "rule_here = functools.partial(rule, 132)\n" + decode("    num_splits = rule_here(q.shape[0])\n"),
        [("work partitioning", "NUM_SPLITS", "loop")],
    ),
    Case(
        "a closure",
        decode("    n = q.shape[0]\n\n    def pick():\n        return 16 if n < 8 else 4\n\n    num_splits = pick()\n"),
        [("work partitioning", "NUM_SPLITS", "loop")],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_splits(case: Case) -> None:
    check(case)
