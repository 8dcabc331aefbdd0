"""What changes in a full graph when its model runs in half precision: which tensors, and which literals. No torch.

Learnt from one capture of the model in that dtype, at the same sizes, and applied to captures at other sizes. So
statistics of a normalisation, casts to float32 and index tensors keep the dtype that the real half model gives them.
Where no such capture exists, a rule that leaves out statements which name a dtype.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from data.construct.metas import ValueRecord
from data.construct.statements import Program, Statement

FLOAT32 = "torch.float32"
_TOKEN = re.compile(r"'[^']*'|\"[^\"]*\"|[A-Za-z_][\w.]*|\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\S")
_DTYPE = re.compile(r"torch\.(b?float(16|32|64)|half|double)")
_FLOAT = re.compile(r"\d+(\.|[eE])")
_NAMES_A_DTYPE = re.compile(r"torch\.(float(32|64)?|double)\b|\.(float|double)\(|autocast|finfo|\.type\(")

Values = Mapping[str, ValueRecord]


@dataclass(frozen=True)
class DtypeForm:
    """The difference between a float32 capture and one of another dtype."""

    dtype: str
    """Of the other: "torch.float16"."""
    values: Mapping[str, str]
    """Name -> dtype, of each tensor whose dtype is not that of the float32 capture."""
    literals: Mapping[int, tuple[tuple[int, str, str], ...]]
    """Statement -> (position of the token, its text in float32, its text in this dtype)."""
    unknown_values: frozenset[str]
    """Tensors whose dtype cannot be told."""
    unknown_statements: frozenset[int]
    """Statements whose form cannot be told."""


def learn_form(base: Program, base_values: Values, other: Program, other_values: Values, dtype: str) -> DtypeForm:
    """From two captures at the same sizes. Raises ValueError unless they have the same number of statements."""
    if len(base.statements) != len(other.statements):
        raise ValueError(f"{len(base.statements)} statements in float32, {len(other.statements)} in {dtype}")
    literals, unknown = {}, set()
    for one, two in zip(base.statements, other.statements, strict=True):
        before, after = _tokens(one), _tokens(two)
        changes = [(place, a, b) for place, (a, b) in enumerate(zip(before, after, strict=False)) if a != b]
        if len(before) != len(after) or not all(_is_dtype_change(a, b) for _, a, b in changes):
            unknown.add(one.index)
        elif changes:
            literals[one.index] = tuple(changes)
    dtypes = {name: other_values[name].dtype for name in base_values if name in other_values}
    changed = {name: found for name, found in dtypes.items() if found != base_values[name].dtype}
    return DtypeForm(dtype, changed, literals, frozenset(base_values.keys() - dtypes.keys()), frozenset(unknown))


def cautious_form(base: Program, base_values: Values, dtype: str) -> DtypeForm:
    """Without such a capture: every float32 tensor changes, but not what a batch_norm takes as parameters, and a
    statement that names a dtype has no form.

    Eager's batch_norm wants all four parameters in float32 if its running statistics are.
    """
    kept = {name for statement in base.statements for name in _batch_norm_parameters(statement)}
    changed = {name: dtype for name, record in base_values.items() if record.dtype == FLOAT32 and name not in kept}
    unknown = (s.index for s in base.statements if any(_NAMES_A_DTYPE.search(line) for line in s.lines))
    return DtypeForm(dtype, changed, {}, frozenset(), frozenset(unknown))


def statement_in(form: DtypeForm, statement: Statement) -> Statement | None:
    """The statement of another float32 capture in this dtype; None if its form cannot be told."""
    if statement.index in form.unknown_statements:
        return None
    changes = form.literals.get(statement.index, ())
    if not changes:
        return statement
    text = "\n".join(statement.lines)
    found = list(_TOKEN.finditer(text))
    for place, before, after in reversed(changes):
        if place >= len(found) or found[place][0] != before:
            return None
        text = text[: found[place].start()] + after + text[found[place].end() :]
    return replace(statement, lines=tuple(text.split("\n")))


def values_in(form: DtypeForm, values: Values) -> dict[str, ValueRecord]:
    """The tensors of another float32 capture in this dtype, without those whose dtype cannot be told."""
    return {
        name: record.model_copy(update={"dtype": form.values[name]}) if name in form.values else record
        for name, record in values.items()
        if name not in form.unknown_values
    }


def _tokens(statement: Statement) -> list[str]:
    return _TOKEN.findall("\n".join(statement.lines))


def _is_dtype_change(before: str, after: str) -> bool:
    """A dtype, or a float such as torch.finfo(dtype).min; an integer would be a size."""
    pair = (before, after)
    return all(map(_DTYPE.fullmatch, pair)) or all(map(_FLOAT.match, pair))


def _batch_norm_parameters(statement: Statement) -> tuple[str, ...]:
    """Running statistics, weight and bias: all that batch_norm reads after its first operand."""
    return statement.reads[1:] if statement.operator == "batch_norm" else ()
