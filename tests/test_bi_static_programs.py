"""Static batch-invariance analysis: how Python programs carry a dependency, and harmless uses that look like one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval_harness.batch_invariance.contract import Contract, InvariantAxis, Parameter, Policy, Semantic
from eval_harness.batch_invariance.registry import ContractRegistry
from eval_harness.batch_invariance.static import analyze, analyze_all
from tests.static_cases import Case, analyze_soundly, check, triton

STEPS = """
@triton.jit
def in_steps(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    acc = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n, BLOCK):  # loop
        cols = start + tl.arange(0, BLOCK)
        acc += tl.load(x_ptr + row * n + cols, mask=cols < n, other=0.0)
    tl.store(y_ptr + row, tl.sum(acc, axis=0))

"""
FOUND = [("reduction order", "BLOCK of in_steps", "loop")]


def program(choose: str, before: str = "", launch: str = "in_steps[(rows,)](x, y, n, BLOCK=block)") -> str:
    """A row sum whose step is chosen by `choose`."""
    return triton(
        f"{before}\n{STEPS}\ndef run(x):\n    rows, n = x.shape\n    y = torch.empty(rows, device=x.device)\n"
        f"{choose}    {launch}\n    return y\n"
    )


TABLE = """
import dataclasses
from typing import NamedTuple


class Tile(NamedTuple):
    block: int = 256
    warps: int = 4

"""
CASES = [
    Case(
        "a field replaced under a condition",
        program(
            "    tile = Tile()\n    if rows < 16:\n        tile = tile._replace(block=1024)\n    block = tile.block\n",
            TABLE,
        ),
        FOUND,
    ),
    Case(
        "another field replaced under a condition",
        program(
            "    tile = Tile()\n    if rows < 16:\n        tile = dataclasses.replace(tile, warps=8)\n"
            "    block = tile.block\n",
            TABLE,
        ),
        [],
    ),
    Case("two tuples", program("    block, stages = (1024, 3) if rows < 16 else (1024, 4)\n"), []),
    Case(
        "a string in between",
        program("    block = {'small': 1024, 'large': 256}['small' if rows < 16 else 'large']\n"),
        FOUND,
    ),
    Case(
        "a formatted key",
        program("    block = TUNED.get(f'{rows}x{n}', 256)\n", "TUNED = {'1x4096': 1024, '64x4096': 512}\n"),
        FOUND,
    ),
    Case(
        "a global set elsewhere",
        program(
            "    choose(rows)\n    block = BLOCK\n",
            "BLOCK = 256\n\n\ndef choose(n):\n    global BLOCK\n    BLOCK = 2048 // n\n",
        ),
        FOUND,
    ),
    Case(
        "a generator of sizes",
        program(
            "    block = max(sizes(rows))\n",
            "def sizes(n):\n    size = 128\n    while size * n < 8192:\n        yield size\n        size *= 2\n",
        ),
        FOUND,
    ),
    Case(
        "match",
        program(
            "    match rows:\n        case 1:\n            block = 1024\n        case _:\n            block = 256\n"
        ),
        FOUND,
    ),
    Case(
        "numpy in between",
        program("    block = int(2 ** np.clip(np.log2(65536 / rows), 6, 12))\n", "import numpy as np\n"),
        FOUND,
    ),
    Case("bits of the batch", program("    block = 1 << (16 - rows.bit_length())\n"), FOUND),
    Case(
        "json in the source",
        program(
            "    block = TUNED['1'] if rows == 1 else TUNED['64']\n",
            'import json\n\nTUNED = json.loads(\'{"1": 1024, "64": 256}\')\n',
        ),
        FOUND,
    ),
    Case(
        "a kernel made in a function",
        triton(
            "def make(BLOCK):\n    @triton.jit\n    def inner(x_ptr, y_ptr, n):\n        row = tl.program_id(0)\n"
            "        acc = tl.zeros([BLOCK], tl.float32)\n        for start in range(0, n, BLOCK):  # loop\n"
            "            acc += tl.load(x_ptr + row * n + start + tl.arange(0, BLOCK))\n"
            "        tl.store(y_ptr + row, tl.sum(acc, axis=0))\n\n"
            "    return inner\n\n\ndef run(x):\n    y = torch.empty(x.shape[0], device=x.device)\n"
            "    make(1024 if x.shape[0] < 16 else 256)[(x.shape[0],)](x, y, x.shape[1])\n    return y\n"
        ),
        [("reduction order", "BLOCK", "loop")],
    ),
    Case(
        "a module with weights",
        triton(
            STEPS
            + "class Sum(torch.nn.Module):\n    def __init__(self, width, block=512):\n        super().__init__()\n"
            "        self.width, self.block = width, block\n\n    def forward(self, x):\n"
            "        y = x.new_empty(x.shape[0])\n"
            "        block = self.block if x.size(0) > 8 else 2 * self.block\n"
            "        in_steps[(x.shape[0],)](x, y, self.width, BLOCK=block)\n        return y\n"
        ),
        FOUND,
    ),
    Case(
        "a pass",
        triton(
            STEPS + "def pattern(x):\n    return x.sum(-1)\n\n\ndef replacement_args(x):\n    return (x,)\n\n\n"
            "@torch.fx.wrap\n"
            "def dispatch(x):\n    y = x.new_empty(x.shape[0])\n"
            "    in_steps[(x.shape[0],)](x, y, x.shape[1], BLOCK=4096 // x.shape[0])\n"
            "    return y\n\n\ndef replacement_func():\n    return dispatch\n"
        ),
        FOUND,
    ),
    Case(
        "a function nobody calls",
        program("    block = 256\n") + "\n\ndef adaptive(x):\n    rows, n = x.shape\n"
        "    y = torch.empty(rows, device=x.device)\n    in_steps[(rows,)](x, y, n, BLOCK=4096 // rows)\n"
        "    return y\n",
        [],
    ),
    Case(
        "a cache of buffers by batch size",
        program(
            "    if rows not in BUFFERS:\n        BUFFERS[rows] = torch.empty(rows, device=x.device)\n"
            "        in_steps[(1,)](x, BUFFERS[rows], n, BLOCK=256)\n"
            "    y = BUFFERS[rows]\n    block = 256\n",
            "BUFFERS = {}\n",
        ),
        [],
    ),
    Case(
        "a batch padded to a bucket",
        program(
            "    for size in (8, 32, 128):\n        if rows <= size:\n            break\n"
            "    x = torch.nn.functional.pad(x, (0, 0, 0, size - rows))\n"
            "    rows = x.shape[0]\n    y = torch.empty(rows, device=x.device)\n    block = 256\n"
        ),
        [],
    ),
    Case(
        "a queue of rows",
        triton("""
@triton.jit
def worker(x_ptr, y_ptr, queue_ptr, rows, n, BLOCK: tl.constexpr):
    row = tl.atomic_add(queue_ptr, 1)
    while row < rows:
        acc = tl.zeros([BLOCK], tl.float32)
        for start in range(0, n, BLOCK):
            acc += tl.load(x_ptr + row * n + start + tl.arange(0, BLOCK))
        tl.store(y_ptr + row, tl.sum(acc, axis=0))
        row = tl.atomic_add(queue_ptr, 1)


def run(x):
    rows, n = x.shape
    y = torch.empty(rows, device=x.device)
    queue = torch.zeros(1, dtype=torch.int32, device=x.device)
    worker[(min(rows, 132),)](x, y, queue, rows, n, BLOCK=256)
    return y
"""),
        [],
    ),
    Case(
        "sums over the rows themselves",
        triton("""
@triton.jit
def columns(x_ptr, y_ptr, rows, n, BLOCK: tl.constexpr):
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros([BLOCK], tl.float32)
    row = tl.program_id(1)
    while row < rows:
        acc += tl.load(x_ptr + row * n + cols, mask=cols < n, other=0.0)
        row += 64
    tl.store(y_ptr + tl.program_id(1) * n + cols, acc, mask=cols < n)


def run(x):
    rows, n = x.shape
    y = torch.empty((64, n), device=x.device)
    columns[(triton.cdiv(n, 128), 64)](x, y, rows, n, BLOCK=128)
    return y
"""),
        [],
    ),
    Case(
        "sequence first",
        triton(
            STEPS + "def run(x):\n    S, B, H = x.shape\n    y = torch.empty((S, B), device=x.device)\n"
            "    in_steps[(S * B,)](x, y, H, BLOCK=512 if B > 4 else 128)\n    return y\n"
        ),
        FOUND,
    ),
    Case(
        "sequence first, by its length",
        triton(
            STEPS + "def run(x):\n    S, B, H = x.shape\n    y = torch.empty((S, B), device=x.device)\n"
            "    in_steps[(S * B,)](x, y, H, BLOCK=512 if S > 4 else 128)\n    return y\n"
        ),
        [],
    ),
    Case(
        "extra splits that stay empty",
        triton("""
@triton.jit
def part(x_ptr, p_ptr, n, parts, SLICE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    s = tl.program_id(1)
    acc = tl.zeros([BLOCK], tl.float32)
    for start in range(s * SLICE, tl.minimum((s + 1) * SLICE, n), BLOCK):
        cols = start + tl.arange(0, BLOCK)
        acc += tl.load(x_ptr + row * n + cols, mask=cols < n, other=0.0)
    tl.store(p_ptr + row * parts + s, tl.sum(acc, axis=0))


@triton.jit
def add(p_ptr, y_ptr, parts):
    row = tl.program_id(0)
    total = 0.0
    for s in range(parts):
        total += tl.load(p_ptr + row * parts + s)
    tl.store(y_ptr + row, total)


def run(x):
    rows, n = x.shape
    num_splits = triton.cdiv(n, 1024)
    if rows < 32:
        num_splits = max(num_splits, 8)
    p = torch.empty((rows, num_splits), device=x.device)
    y = torch.empty(rows, device=x.device)
    part[(rows, num_splits)](x, p, n, num_splits, SLICE=1024, BLOCK=256)
    add[(rows,)](p, y, num_splits)
    return y
"""),
        [],
    ),
    Case(
        "a plan made on the device",
        triton("""
@triton.jit
def plan(lens_ptr, parts_ptr):
    row = tl.program_id(0)
    tl.store(parts_ptr + row, tl.maximum(1, 64 // tl.num_programs(0)))


@triton.jit
def part(x_ptr, y_ptr, parts_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    chunk = tl.cdiv(n, tl.load(parts_ptr + row))
    lo = tl.program_id(1) * chunk
    acc = tl.zeros([BLOCK], tl.float32)
    for start in range(lo, min(lo + chunk, n), BLOCK):  # loop
        cols = start + tl.arange(0, BLOCK)
        acc += tl.load(x_ptr + row * n + cols, mask=cols < n, other=0.0)
    tl.store(y_ptr + row * 64 + tl.program_id(1), tl.sum(acc, axis=0))


def run(x, lens):
    rows, n = x.shape
    parts = torch.empty(rows, dtype=torch.int32, device=x.device)
    plan[(rows,)](lens, parts)
    y = torch.zeros((rows, 64), device=x.device)
    part[(rows, 64)](x, y, parts, n, BLOCK=128)
    return y
"""),
        [("work partitioning", "num_programs(0) of plan", "loop")],
    ),
    Case(
        "one scale for the whole batch",
        "import torch\n\n\ndef run(x):\n    scale = x.abs().max() / 448.0\n"
        "    return (x / scale).round() * scale  # use\n",
        [("reduction order", "scale", "use")],
    ),
    Case(
        "a scale a row",
        "import torch\n\n\ndef run(x):\n    scale = x.abs().amax(-1, keepdim=True) / 448.0\n"
        "    return (x / scale).round() * scale\n",
        [],
    ),
    Case(
        "a scale of the weight",
        "import torch\n\n\ndef run(x, weight):\n    scale = weight.abs().max() / 448.0\n    return x * scale\n",
        [],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_programs(case: Case) -> None:
    check(case)


SPLIT = CASES[-6].source


def contract_with(policy: Policy) -> Contract:
    """A contract over one parameter, BLOCK_STEP alias BLOCK."""
    parameter = Parameter("BLOCK_STEP", Semantic.SPLIT_STRUCTURE, policy, ("BLOCK",))
    return Contract("mine", (InvariantAxis("batch", ("rows",)),), (parameter,))


@pytest.mark.parametrize("policy", list(Policy))
def test_policy_decides_whether_a_named_parameter_may_follow_the_batch(policy: Policy) -> None:
    source = {"kernel.py": program("    block = 4096 // rows\n")}
    analysis = analyze_all(source, contract_with(policy))
    names = {finding.parameter for finding in analysis.findings}
    assert names == ({"BLOCK_STEP"} if policy is Policy.FIXED_ACROSS_BATCH else set())
    if not names:
        assert any("the contract allows" in one.reason for one in analysis.unresolved)


def test_text_that_is_no_python_stays_open() -> None:
    analysis = analyze_all({"kernel.py": "def run(x:\n    return x\n"}, ContractRegistry.shipped().for_family(None))
    assert not analysis.findings
    assert [(one.file, one.line) for one in analysis.unresolved] == [("kernel.py", 1)]


def test_library_calls_stay_open() -> None:
    analysis = analyze_all(
        {"kernel.py": "import torch\n\n\ndef run(x, w):\n    return torch.nn.functional.linear(x, w)\n"},
        ContractRegistry.shipped().for_family("matmul"),
    )
    assert not analysis.findings
    assert any(one.line == 5 and "linear" in one.reason for one in analysis.unresolved)


def test_a_path_leads_from_the_batch_to_the_sink() -> None:
    source = program("    waves = 132 / rows\n    block = 1024 if waves > 4 else 256\n")
    finding = analyze({"kernel.py": source}, ContractRegistry.shipped().for_family(None))[0]
    texts = [step.text for step in finding.path]
    assert texts[0] == "rows, n = x.shape"
    assert texts[1:3] == ["waves = 132 / rows", "block = 1024 if waves > 4 else 256"]
    assert "range(0, n, BLOCK)" in texts[-1]
    assert "BLOCK" in finding.repair


LINES = [line for case in CASES if isinstance(case.source, str) for line in case.source.splitlines()]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(LINES), min_size=1, max_size=40), st.sampled_from(["kernel.py", "kernel.cu"]))
def test_no_text_makes_it_raise(lines: list[str], name: str) -> None:
    analyze_soundly({name: "\n".join(lines)}, "attention")
