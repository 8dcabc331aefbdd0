"""Static batch-invariance analysis: mixture-of-experts kernels, and elementwise kernels that calculate in two ways."""

from __future__ import annotations

import pytest

from tests.static_cases import Case, check, triton

EXPERT = """
@triton.jit
def add_expert(x, ids, gate, w, y, T, K, e, TOPK: tl.constexpr, N: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr):
    t = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.arange(0, N)
    coef = tl.zeros((BM,), tl.float32)
    for j in tl.static_range(TOPK):
        hit = tl.load(ids + t * TOPK + j, mask=t < T, other=-1) == e
        coef += tl.where(hit, tl.load(gate + t * TOPK + j, mask=t < T, other=0.0), 0.0)
    acc = tl.zeros((BM, N), tl.float32)
    for k0 in range(0, K, BK):
        k = k0 + tl.arange(0, BK)
        xv = tl.load(x + t[:, None] * K + k[None, :], mask=(t < T)[:, None], other=0.0)
        acc = tl.dot(xv, tl.load(w + (e * K + k[:, None]) * N + n[None, :]), acc)
    at = y + t[:, None] * N + n[None, :]
    tl.store(at, tl.load(at, mask=(t < T)[:, None], other=0.0) + coef[:, None] * acc, mask=(t < T)[:, None])


@triton.jit
def grouped(x, tokens, experts, padded, w, y, num_valid, K, N, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    pid = tl.program_id(0)
    if pid * BM >= tl.load(padded):
        return
    t = tl.load(tokens + pid * BM + tl.arange(0, BM))
    mask = t < num_valid
    e = tl.load(experts + pid)
    if e == -1:
        return
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k0 in range(0, tl.cdiv(K, BK)):  # grouped loop
        k = k0 * BK + tl.arange(0, BK)
        a = tl.load(x + t[:, None] * K + k[None, :], mask=mask[:, None], other=0.0)
        acc += tl.dot(a, tl.load(w + (e * K + k[:, None]) * N + n[None, :]))
    tl.store(y + t[:, None] * N + n[None, :], acc, mask=mask[:, None])

"""
ARGUMENTS = "x, ids, gates, w, y, T, K, e, TOPK=ids.shape[1], N=N, BM=16, BK=64"


def experts(schedule: str) -> str:
    """A loop over experts that adds each one's part to the result, in the order of `schedule`."""
    return triton(
        EXPERT
        + "\ndef run(x, ids, gates, w):\n    T, K = x.shape\n    E, _, N = w.shape\n"
        + "    load = torch.bincount(ids.flatten(), minlength=E).tolist()\n"
        "    y = torch.zeros((T, N), device=x.device)\n"
        + f"    for e in {schedule}:  # order\n        add_expert[(triton.cdiv(T, 16),)]({ARGUMENTS})\n    return y\n"
    )


def fused(choose: str) -> str:
    """A grouped product whose tiles are chosen by `choose`."""
    return triton(
        EXPERT + "\ndef run(x, topk_ids, w, sorted_token_ids, expert_ids, num_padded):\n    M, K = x.shape\n"
        "    E, _, N = w.shape\n"
        + "    y = torch.zeros((M * topk_ids.shape[1], N), device=x.device)\n"
        + choose
        + "    grid = (triton.cdiv(sorted_token_ids.shape[0], bm), triton.cdiv(N, 64))\n"
        + "    grouped[grid](x, sorted_token_ids, expert_ids, num_padded, w, y, topk_ids.numel(), K, N, BM=bm, "
        "BN=64, BK=bk)\n" + "    return y\n"
    )


def placed(limit: str, use: str) -> str:
    """Tokens with their place among those that chose the same expert."""
    return (
        "import torch\n\n\ndef run(x, ids):\n    T = x.shape[0]\n"
        f"    flags = torch.nn.functional.one_hot(ids, 8)\n    place = (flags.cumsum(0) * flags).sum(-1)\n"
        f"    room = {limit}\n"
        f"    {use}\n"
    )


SIGMOID = """
@triton.jit
def act(x_ptr, y_ptr, n, FAST: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n)
    if FAST:  # choice
        y = 1.0 / (1.0 + tl.exp2(-1.44269504 * x))
    else:
        y = 1.0 / (1.0 + tl.exp(-x))
    tl.store(y_ptr + offs, y, mask=offs < n)


@triton.jit
def masked(x_ptr, y_ptr, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        x = tl.load(x_ptr + offs)
    else:
        x = tl.load(x_ptr + offs, mask=offs < n)
    tl.store(y_ptr + offs, tl.sigmoid(x), mask=offs < n)

"""


def activation(launch: str) -> str:
    return triton(
        SIGMOID + "\ndef run(x):\n    y = torch.empty_like(x)\n    n = x.numel()\n"
        "    grid = (triton.cdiv(n, 1024),)\n"
        f"    {launch}\n    return y\n"
    )


CHOICE = ("algorithm selection", "choice of kernel", "choice")
CASES = [
    Case("experts in a fixed order", experts("range(E)"), []),
    Case("experts with tokens, in a fixed order", experts("[e for e in range(E) if load[e] > 0]"), []),
    Case(
        "the fullest expert first",
        experts("sorted(range(E), key=lambda e: -load[e])"),
        [("expert routing", "order of the loop", "order")],
    ),
    Case("row tiles by the tokens", fused("    bm, bk = (16, 64) if M <= 32 else (64, 64)\n"), []),
    Case(
        "K tiles by the tokens",
        fused("    bm, bk = (16, 128) if M <= 32 else (64, 64)\n"),
        [("reduction order", "REDUCTION_TILE", "grouped loop")],
        family="moe",
    ),
    Case(
        "tokens beyond a fair share are dropped",
        placed("int(1.25 * T / 8)", "return x * (place <= room)[:, None]  # drop"),
        [("expert routing", "EXPERT_CAPACITY", "drop")],
        family="moe",
    ),
    Case(
        "tokens beyond a constant are dropped",
        placed("4", "return torch.where((place <= room)[:, None], x, 0)  # drop"),
        [("expert routing", "EXPERT_CAPACITY", "drop")],
        family="moe",
    ),
    Case("places to sort by", placed("8", "return x[torch.argsort(place + 1000 * ids)], room"), [], family="moe"),
    Case("exact and fast", activation("act[grid](x, y, n, FAST=x.shape[0] > 64, BLOCK=1024)"), [CHOICE]),
    Case("fast by the dtype", activation("act[grid](x, y, n, FAST=x.dtype == torch.float16, BLOCK=1024)"), []),
    Case("with and without a mask", activation("masked[grid](x, y, n, EVEN=n % 1024 == 0, BLOCK=1024)"), []),
    Case(
        "two formulas in PyTorch",
        "import torch\nimport torch.nn.functional as F\n\n\ndef run(x):\n    if len(x) > 16:  # choice\n"
        "        return F.gelu(x, approximate='tanh')\n    return F.gelu(x)\n",
        [CHOICE],
    ),
    Case(
        "a copy for large batches",
        "import torch\nimport torch.nn.functional as F\n\n\ndef run(x):\n    if len(x) > 16:\n"
        "        x = x.contiguous()\n    return F.gelu(x)\n",
        [],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_routing(case: Case) -> None:
    check(case)
