"""Static batch-invariance analysis: forms of Python that carry the batch (spread shapes, match, autograd functions)."""

from __future__ import annotations

import pytest

from tests.static_cases import Case, check, triton

STEPS = """
@triton.jit
def in_steps(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    acc = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n, BLOCK):  # loop
        cols = start + tl.arange(0, BLOCK)
        acc += tl.load(x_ptr + row * n + cols, mask=cols < n, other=0.0)
    tl.store(y_ptr + row, tl.sum(acc, axis=0))


@triton.jit
def whole_row(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    tl.store(y_ptr + row, tl.sum(tl.load(x_ptr + row * n + cols, mask=cols < n, other=0.0), axis=0))

"""
FOUND = [("reduction order", "BLOCK of in_steps", "loop")]
CHOSEN = [("algorithm selection", "choice of kernel", "choice")]


def spread(before: str, choose: str) -> str:
    """A row sum whose step is chosen from a spread shape."""
    return triton(
        STEPS
        + before
        + f"\n\ndef run(x):\n    shape = x.shape\n    x2 = x.reshape(-1, shape[-1])\n    {choose}\n"
        + "    y = torch.empty(x2.shape[0], device=x.device)\n"
        + "    in_steps[(x2.shape[0],)](x2, y, x2.shape[1], BLOCK=block)\n    return y\n"
    )


def match(text: str, subject: str = "rows") -> str:
    """Kernels chosen by a match statement."""
    body = (
        text.replace("STEPS", "in_steps[(rows,)](x, y, n, BLOCK=64)")
        .replace("WHOLE", "whole_row[(rows,)](x, y, n, BLOCK=4096)")
        .replace("\n", "\n        ")
    )
    return triton(
        STEPS + "\n\ndef run(x):\n    rows, n = x.shape\n    y = torch.empty(rows, device=x.device)\n"
        f"    match {subject}:{body.rstrip(' ')}    return y\n"
    )


def function(choose: str, call: str, context: str = "ctx, ", more: str = "") -> str:
    """An autograd function that launches a kernel."""
    return triton(
        STEPS
        + f"""
class RowSum(torch.autograd.Function):
    @staticmethod
    def forward({context}x):
        rows, n = x.shape
        block = {choose}
        y = torch.empty(rows, device=x.device)
        in_steps[(rows,)](x, y, n, BLOCK=block)
        return y
{more}

{call}
"""
    )


PLAIN_CALL = "def run(x):\n    return RowSum.apply(x.contiguous())"
NAMED_CALL = "row_sum = RowSum.apply\n\n\ndef run(x):\n    return row_sum(x)"
SETUP = "\n    @staticmethod\n    def setup_context(ctx, inputs, output):\n        ctx.save_for_backward(*inputs)\n"
KEPT = "\n    @staticmethod\n    def backward(ctx, grad):\n        return grad\n"
TWO = "def pick(rows, cols):\n    return {}\n"
BY_ROWS, BY_COLUMNS = "64 if rows > 32 else 256", "64 if cols > 32 else 256"

CASES = [
    Case("a spread shape of a view", spread(TWO.format(BY_ROWS), "block = pick(*x2.shape)"), FOUND),
    Case("a spread shape of an argument", spread(TWO.format(BY_ROWS), "block = pick(*x.shape)"), FOUND),
    Case("the columns of a spread shape", spread(TWO.format(BY_COLUMNS), "block = pick(*x2.shape)"), []),
    Case("the columns of an argument's shape", spread(TWO.format(BY_COLUMNS), "block = pick(*x.shape)"), []),
    Case(
        "a spread shape before and after others",
        spread(
            "def pick(first, rows, cols, last):\n    return 64 if rows > 32 else 256\n",
            "block = pick(8, *x.shape, 8)",
        ),
        FOUND,
    ),
    Case(
        "a default behind a spread shape",
        spread("def pick(rows, cols, limit=32):\n    return 64 if limit > 32 else 256\n", "block = pick(*x.shape)"),
        [],
    ),
    Case(
        "a spread shape into a class",
        spread(
            "@dataclass\nclass Problem:\n    rows: int\n    cols: int\n",
            "problem = Problem(*x.shape)\n    block = 64 if problem.rows > 32 else 256",
        ),
        FOUND,
    ),
    Case(
        "a spread shape into parameters that take any number",
        spread(
            "def pick(*sizes):\n    rows, cols = sizes\n    return 64 if rows > 32 else 256\n",
            "block = pick(*x.shape)",
        ),
        FOUND,
    ),
    Case("a guard on a captured name", match("\ncase m if m <= 4:  # choice\n    WHOLE\ncase _:\n    STEPS\n"), CHOSEN),
    Case("a literal", match("\ncase 1:  # choice\n    WHOLE\ncase _:\n    STEPS\n"), CHOSEN),
    Case("alternatives", match("\ncase 1 | 2 | 4:  # choice\n    WHOLE\ncase other:\n    STEPS\n"), CHOSEN),
    Case("an empty batch", match("\ncase 0:\n    pass\ncase _:\n    STEPS\n"), []),
    Case("an expression", match("\ncase True:  # choice\n    WHOLE\ncase False:\n    STEPS\n", "rows > 8"), CHOSEN),
    Case(
        "a tuple",
        match("\ncase (r, 4096) if r < 8:  # choice\n    WHOLE\ncase (_, _):\n    STEPS\n", "(rows, n)"),
        CHOSEN,
    ),
    Case("the columns of a tuple", match("\ncase (_, 4096):\n    WHOLE\ncase _:\n    STEPS\n", "(rows, n)"), []),
    Case("a match on the columns", match("\ncase k if k <= 4096:\n    WHOLE\ncase _:\n    STEPS\n", "n"), []),
    Case(
        "a captured name that is used",
        match("\ncase m:\n    in_steps[(rows,)](x, y, n, BLOCK=64 if m > 8 else 32)\n"),
        FOUND,
    ),
    Case("an autograd function", function(BY_ROWS, PLAIN_CALL, more=KEPT), FOUND),
    Case("an autograd function by name", function(BY_ROWS, NAMED_CALL), FOUND),
    Case("an autograd function without a context", function(BY_ROWS, PLAIN_CALL, "", SETUP), FOUND),
    Case("an autograd function of the columns", function("64 if n > 512 else 32", PLAIN_CALL), []),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_forms(case: Case) -> None:
    check(case)
