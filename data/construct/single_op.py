"""Single operators of a program: one cut each, once an argument pattern. Views, casts and factories are no tasks."""

from __future__ import annotations

import re
from collections.abc import Collection

from data.allowed_calls import RANDOM, READS_VALUES
from data.construct.cutting import Cut, cut
from data.construct.effects import METADATA, SHARES_ANY, SHARES_FIRST
from data.construct.rendering import rename
from data.construct.statements import Program, Statement

_COMPUTES = frozenset({"einsum", "conj_physical", "chain_matmul"})
"""May return an operand as it is, but are there to compute."""
_FACTORIES = frozenset(
    (
        "arange", "complex", "empty", "empty_permuted", "empty_strided", "eye", "full", "linspace", "logspace", "ones",
        "range", "scalar_tensor", "tensor", "zeros", "tril_indices", "triu_indices", "hann_window", "hamming_window",
        "bartlett_window", "blackman_window", "kaiser_window",
    )
)  # fmt: skip
_COPIES = frozenset({"clone", "copy", "setitem", "fill", "zero", "lift_fresh_copy"})
_NO_TASK = (SHARES_FIRST | SHARES_ANY | METADATA | _FACTORIES | _COPIES | RANDOM | READS_VALUES) - _COMPUTES


def single_op_cuts(
    program: Program, tensors: Collection[str], *, parameters: Collection[str] | None = None
) -> list[Cut]:
    """One cut an operator, in order; of statements that differ only in which values they read, the first.

    A statement that nests several operators, that writes an input in place, or that computes no tensor gives none.
    """
    found: dict[str, Cut] = {}
    for statement in program.statements:
        if statement.operator in _NO_TASK or statement.operator == "" or "+" in statement.operator:
            continue
        pattern = argument_pattern(statement, tensors)
        if pattern not in found:
            part = cut(program, (statement.index,), tensors=tensors, parameters=parameters)
            if part is not None:
                found[pattern] = part
    return list(found.values())


def argument_pattern(statement: Statement, tensors: Collection[str]) -> str:
    """The statement with its values numbered: equal for calls of one operator with the same literals."""
    numbered = {name: f"{'t' if name in tensors else 'n'}_{index}" for index, name in enumerate(statement.reads)}
    line = rename(statement.lines[0], numbered)
    return re.sub(r"^[A-Za-z_]\w* = ", "", line) if statement.target is not None else line
