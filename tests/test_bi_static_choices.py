"""Static batch-invariance analysis: choices of kernels, random streams, atomics, expert routing, sums in PyTorch."""

from __future__ import annotations

import pytest

from tests.static_cases import Case, check, triton

ROWS = """
@triton.jit
def whole_row(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + cols, mask=cols < n, other=0.0)
    tl.store(y_ptr + row, tl.sum(x, axis=0))


@triton.jit
def whole_row_persistent(x_ptr, y_ptr, rows, n, BLOCK: tl.constexpr):
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        cols = tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n + cols, mask=cols < n, other=0.0)
        tl.store(y_ptr + row, tl.sum(x, axis=0))


@triton.jit
def in_steps(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    acc = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        acc += tl.load(x_ptr + row * n + cols, mask=cols < n, other=0.0)
    tl.store(y_ptr + row, tl.sum(acc, axis=0))


@triton.jit
def scale(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offs, tl.load(x_ptr + offs, mask=offs < n) * 2.0, mask=offs < n)


@triton.jit
def scale_rows(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    offs = tl.program_id(0) * n + cols
    tl.store(y_ptr + offs, tl.load(x_ptr + offs, mask=cols < n) * 2.0, mask=cols < n)

"""


def rows(body: str) -> str:
    return triton(
        ROWS
        + "\ndef run(x):\n    rows, n = x.shape\n    y = torch.empty(rows, device=x.device)\n"
        + "    block = triton.next_power_of_2(n)\n"
        + body
        + "    return y\n"
    )


CHOICE = ("algorithm selection", "choice of kernel", "choice")
CASES = [
    Case(
        "two kernels that add up differently",
        rows(
            "    if rows > 64:  # choice\n        whole_row[(rows,)](x, y, n, BLOCK=block)\n"
            "    else:\n        in_steps[(rows,)](x, y, n, BLOCK=256)\n"
        ),
        [CHOICE],
    ),
    Case(
        "an early return",
        rows(
            "    if rows > 64:  # choice\n        whole_row[(rows,)](x, y, n, BLOCK=block)\n        return y\n"
            "    in_steps[(rows,)](x, y, n, BLOCK=256)\n"
        ),
        [CHOICE],
    ),
    Case(
        "a choice by the width",
        rows(
            "    if n > 4096:\n        whole_row[(rows,)](x, y, n, BLOCK=block)\n"
            "    else:\n        in_steps[(rows,)](x, y, n, BLOCK=256)\n"
        ),
        [],
    ),
    Case(
        "two kernels that add up every row alike",
        rows(
            "    if rows > 1024:\n        whole_row_persistent[(132,)](x, y, rows, n, BLOCK=block)\n"
            "    else:\n        whole_row[(rows,)](x, y, n, BLOCK=block)\n"
        ),
        [],
    ),
    Case(
        "one kernel, launched with another step",
        rows(
            "    if rows > 1024:  # choice\n        in_steps[(rows,)](x, y, n, BLOCK=1024)\n"
            "    else:\n        in_steps[(rows,)](x, y, n, BLOCK=256)\n"
        ),
        [("reduction order", "choice of kernel", "choice")],
    ),
    Case(
        "two kernels that add nothing up",
        rows(
            "    if rows > 64:\n        scale[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)\n"
            "    else:\n        scale_rows[(rows, triton.cdiv(n, 256))](x, y, n, BLOCK=256)\n"
        ),
        [],
    ),
    Case(
        "an empty batch",
        rows("    if rows == 0:\n        return y\n    whole_row[(rows,)](x, y, n, BLOCK=block)\n"),
        [],
    ),
    Case(
        "a batch that is refused",
        rows(
            "    if rows > 65535:\n        raise ValueError('too many')\n    whole_row[(rows,)](x, y, n, BLOCK=block)\n"
        ),
        [],
    ),
    Case(
        "a kernel taken from a name",
        rows(
            "    kernel, size = (whole_row, block) if rows > 64 else (in_steps, 256)\n"
            "    kernel[(rows,)](x, y, n, BLOCK=size)  # choice\n"
        ),
        [CHOICE],
    ),
    Case(
        "large batches in pieces of rows",
        rows(
            "    for start in range(0, rows, 4096):\n        part = x[start:start + 4096]\n"
            "        whole_row[(part.shape[0],)](part, y[start:start + 4096], n, BLOCK=block)\n"
        ),
        [],
    ),
    Case(
        "library calls chosen by the batch",
        "import torch\n\n\ndef run(x, w):\n    if x.shape[0] < 16:  # choice\n"
        "        return (x[:, None, :] * w).sum(-1)\n"
        "    return torch.matmul(x, w.t())\n",
        [CHOICE],
    ),
    Case("a library call", "import torch\n\n\ndef run(x, w):\n    return torch.matmul(x, w)\n", []),
    Case(
        "random numbers at the row's place in the batch",
        triton("""
@triton.jit
def gumbel(logits_ptr, out_ptr, seed, V, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    u = tl.rand(seed, row * V + cols)  # rand
    x = tl.load(logits_ptr + row * V + cols, mask=cols < V, other=-float("inf"))
    tl.store(out_ptr + row, tl.argmax(x - tl.log(-tl.log(u)), axis=0))


def run(logits):
    B, V = logits.shape
    out = torch.empty(B, dtype=torch.int32, device=logits.device)
    gumbel[(B,)](logits, out, 1234, V, BLOCK=triton.next_power_of_2(V))
    return out
"""),
        [("work partitioning", "RNG_SEED", "rand")],
        family="sampling",
    ),
    Case(
        "random numbers from a row's own seed",
        triton("""
@triton.jit
def gumbel(logits_ptr, seeds_ptr, out_ptr, V, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    u = tl.rand(tl.load(seeds_ptr + row), cols)
    x = tl.load(logits_ptr + row * V + cols, mask=cols < V, other=-float("inf"))
    tl.store(out_ptr + row, tl.argmax(x - tl.log(-tl.log(u)), axis=0))


def run(logits, seeds):
    B, V = logits.shape
    out = torch.empty(B, dtype=torch.int32, device=logits.device)
    gumbel[(B,)](logits, seeds, out, V, BLOCK=triton.next_power_of_2(V))
    return out
"""),
        [],
        family="sampling",
    ),
    Case(
        "a seed that counts the batch",
        triton("""
@triton.jit
def noise(out_ptr, seed, BLOCK: tl.constexpr):
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + tl.program_id(0) * 4096 + cols, tl.rand(seed, cols))  # rand


def run(x):
    out = torch.empty_like(x)
    noise[(x.shape[0], 4)](out, 7 + x.shape[0], BLOCK=1024)
    return out
"""),
        [("work partitioning", "RNG_SEED", "rand")],
    ),
    Case(
        "one stream for all rows",
        "import torch\n\n\ndef run(x):\n    return x + torch.rand(x.shape, device=x.device)  # r\n",
        [("work partitioning", "RNG_SEED", "r")],
    ),
    Case(
        "atomics whose number follows the batch",
        triton("""
@triton.jit
def part(x_ptr, y_ptr, n, CHUNK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.program_id(1) * CHUNK + tl.arange(0, CHUNK)
    x = tl.load(x_ptr + row * n + cols, mask=cols < n, other=0.0)
    tl.atomic_add(y_ptr + row, tl.sum(x, axis=0))  # atomic


def run(x):
    rows, n = x.shape
    y = torch.zeros(rows, device=x.device)
    parts = max(1, 132 // rows)
    part[(rows, parts)](x, y, n, CHUNK=triton.next_power_of_2(triton.cdiv(n, parts)))
    return y
"""),
        [("work partitioning", "parts", "atomic")],
    ),
    Case(
        "a count with atomics",
        triton("""
@triton.jit
def histogram(ids_ptr, counts_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ids = tl.load(ids_ptr + offs, mask=offs < n)
    tl.atomic_add(counts_ptr + ids, 1, mask=offs < n)


def run(ids):
    counts = torch.zeros(64, dtype=torch.int32, device=ids.device)
    n = ids.numel()
    histogram[(triton.cdiv(n, 256 if n > 4096 else 64),)](ids, counts, n, BLOCK=256 if n > 4096 else 64)
    return counts
"""),
        [],
    ),
    Case(
        "parts of a sum in PyTorch",
        "import torch\n\n\ndef run(x):\n    M, K = x.shape\n    parts = 8 if M < 32 else 2\n"
        "    return x.view(M, parts, K // parts).sum(-1).sum(-1)  # sum\n",
        [("work partitioning", "parts", "sum")],
    ),
    Case(
        "constant parts of a sum in PyTorch",
        "import torch\n\n\ndef run(x):\n    M, K = x.shape\n    return x.view(M, 8, K // 8).sum(-1).sum(-1)\n",
        [],
    ),
    Case(
        "chunks of the reduction in a Python loop",
        "import torch\n\n\ndef run(x, w):\n    n = max(1, 64 // x.size(0))\n    acc = 0\n"
        "    for a, b in zip(x.chunk(n, dim=1), w.chunk(n, dim=0)):  # loop\n        acc = acc + a @ b\n"
        "    return acc\n",
        [("work partitioning", "n", "loop")],
    ),
    Case(
        "steps of a Python loop",
        "import torch\n\n\ndef run(x, w):\n    M, K = x.shape\n    step = 256 if M <= 8 else 1024\n"
        "    acc = x.new_zeros(M, w.shape[1])\n"
        "    for k in range(0, K, step):  # loop\n        acc += x[:, k:k + step] @ w[k:k + step]\n    return acc\n",
        [("reduction order", "step", "loop")],
    ),
    Case(
        "experts that choose tokens",
        "import torch\n\n\ndef run(x, router_logits):\n    T = x.shape[0]\n    capacity = T * 2 // 8\n"
        "    scores = router_logits.softmax(-1)\n    picked, index = torch.topk(scores, capacity, dim=0)  # topk\n"
        "    return picked, index\n",
        [("expert routing", "EXPERT_CAPACITY", "topk")],
        family="moe",
    ),
    Case(
        "tokens dropped beyond a capacity",
        "import torch\n\n\ndef run(x, expert_ids):\n    capacity = int(1.25 * x.shape[0] / 8)\n"
        "    one_hot = torch.nn.functional.one_hot(expert_ids, 8)\n    place = one_hot.cumsum(0) * one_hot\n"
        "    keep = (place <= capacity).all(-1)  # drop\n    return torch.where(keep[:, None], x, 0)\n",
        [("expert routing", "EXPERT_CAPACITY", "drop")],
        family="moe",
    ),
    Case(
        "a helper in another file",
        {
            "kernel.py": rows("    whole_row[(rows,)](x, y, n, BLOCK=block)\n")
            .replace("import torch\n", "import torch\nfrom tiles import steps\n")
            .replace("whole_row[(rows,)](x, y, n, BLOCK=block)", "in_steps[(rows,)](x, y, n, BLOCK=steps(x))")
            .replace("    for start in range(0, n, BLOCK):\n", "    for start in range(0, n, BLOCK):  # loop\n"),
            "tiles.py": "LIMIT = 64\n\n\ndef steps(x):\n    return 1024 if x.size(0) > LIMIT else 256\n",
        },
        [("reduction order", "BLOCK of in_steps", "loop")],
    ),
    Case(
        "a protected argument of a function that is not here",
        "from flash_attn import flash_attn_with_kvcache\n\n\ndef run(q, k_cache, v_cache):\n"
        "    return flash_attn_with_kvcache(q, k_cache, v_cache, num_splits=64 // q.shape[0])  # call\n",
        [("work partitioning", "NUM_SPLITS", "call")],
    ),
    Case("text that is no Python", "def run(x:\n    return x\n", []),
    Case("an empty file", "", []),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_choices(case: Case) -> None:
    check(case)
