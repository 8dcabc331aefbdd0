"""Cuts of random straight-line programs, with views and writes in place: run alone, they change nothing."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from data.construct.cutting import cut, cut_source, explain_cut
from data.construct.statements import parse_program
from tests.program_helpers import module_of, names_of, run_cut, run_statements, source_of

# random straight-line programs: square integer tensors and their first rows, so that every operator fits every value

SQUARE_OPERATORS = (
    "{0} + {1}", "{0} * 3", "torch.relu({0})", "torch.nn.functional.relu({0}, inplace = True)", "{0}.relu_()",
    "{0}.add_({1})", "torch.add({0}, {1}, out = {2})", "{0}.view(4, 4)", "{0}.T", "{0}.transpose(0, 1)",
    "{0}.reshape(4, 4)", "{0}.contiguous()", "{0}.clone()", "torch.nn.functional.dropout({0}, 0.1, False, False)",
    "{0}.to(torch.int64)", "torch.where({0} > {1}, {0}, {1})", "{0}.type_as({1})", "{0}.copy_({1})",
    "torch.einsum('ij->ji', {0})", "torch.ops.aten.mul_.Tensor({0}, 2)", "{0}.relu_() + {1}",
)  # fmt: skip
ROW_OPERATORS = ("{0}[0]", "{0}[(slice(None, None, None), 1)]", "{0}.select(0, 2)", "{0}.diagonal()", "{0}.sum(0)")
FROM_ROW = ("{0}.expand(4, 4) + 0", "torch.stack([{0}, {1}, {0}, {0}])")
ON_ROWS = ("{0} - {1}", "{0}.mul_({1})", "{0}.flip(0)", "{0}.unsqueeze(0)[0]", "{0}.relu_()", "{0}.detach()")
WITHOUT_TARGET = ("{0} += {1}", "{0}.neg_()", "{0}[0] = {2}[1]", "{0}[(slice(0, 2, None), 1)] = 7", "{0} -= 1")


@st.composite
def programs(draw: st.DrawFn, *, in_place: bool = True) -> str:
    squares, rows, lines = ["x", "y"], ["r"], []
    tables = [
        (squares, squares, SQUARE_OPERATORS), (squares, rows, ROW_OPERATORS), (rows, squares, FROM_ROW),
        (rows, rows, ON_ROWS), (squares, None, WITHOUT_TARGET),
    ]  # fmt: skip
    for index in range(draw(st.integers(2, 12))):
        source, made, operators = draw(st.sampled_from(tables if in_place else tables[:4]))
        if not in_place:
            operators = tuple(
                text for text in operators if "_(" not in text and "True" not in text and "out" not in text
            )
            operators = tuple(text for text in operators if "mul_." not in text)
        text = draw(st.sampled_from(operators)).format(*(draw(st.sampled_from(source)) for _ in range(3)))
        if made is None:
            lines.append(text)
            if " += " in text and draw(st.booleans()):
                lines.append(f"t{index} = {text.split()[0]}")
                squares.append(f"t{index}")
        else:
            lines.append(f"t{index} = {text}")
            made.append(f"t{index}")
    returned = draw(st.lists(st.sampled_from([*squares, *rows]), min_size=1, max_size=4, unique=True))
    return source_of("\n".join([*lines, f"return ({', '.join(returned)},)"]), "x, y, r")


def arguments_of(seed: int) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randint(-9, 9, shape, generator=generator)
        for name, shape in (("x", (4, 4)), ("y", (4, 4)), ("r", (4,)))
    }


def returned_by(source: str) -> tuple[torch.Tensor, ...] | None:
    """None for a program that torch itself refuses, such as a write into overlapping elements."""
    try:
        return module_of(source)(**arguments_of(1))
    except RuntimeError:
        return None


@settings(deadline=None, max_examples=60)
@given(programs())
def test_the_analysis_knows_every_value_that_a_statement_changes(source: str) -> None:
    program = parse_program(source, "g")
    assume(returned_by(source) is not None)
    values = arguments_of(1)
    for statement in program.statements:
        before = {name: value.clone() for name, value in values.items()}
        run_statements(program, [statement.index], values)
        written = {root for name in statement.mutates for root in program.storage.of[name]}
        changed = {name for name, value in before.items() if not torch.equal(value, values[name])}
        assert all(program.storage.of[name] & written for name in changed)
        for one, other in itertools.combinations(values, 2):
            if values[one].untyped_storage().data_ptr() == values[other].untyped_storage().data_ptr():
                assert program.storage.of[one] & program.storage.of[other]


@settings(deadline=None, max_examples=120)
@given(programs(), st.data())
def test_a_cut_run_alone_leaves_the_program_as_it_was(source: str, data: st.DataObject) -> None:
    program = parse_program(source, "g")
    expected = returned_by(source)
    assume(expected is not None and program.statements)
    end = len(program.statements)
    if data.draw(st.booleans()):
        start, stop = sorted(data.draw(st.tuples(st.integers(0, end - 1), st.integers(0, end))))
        indices: Sequence[int] = range(start, max(stop, start + 1))
    else:
        indices = data.draw(st.lists(st.integers(0, end - 1), min_size=1, unique=True))
    part = cut(program, indices, tensors=names_of(program), inputs_may_change=True)
    assume(part is not None)
    assert part is not None and expected is not None
    later = set(part.indices)  # the cut and all that needs it
    needed = set(part.indices)
    for index in range(end):
        if later & set(program.storage.predecessors[index]):
            later.add(index)
    for index in reversed(range(end)):
        if index in needed:
            needed.update(program.storage.predecessors[index])
    as_late_as_possible = [index for index in range(end) if index not in later]
    as_early_as_possible = [index for index in range(end) if index in needed and index not in part.indices]
    for before in (as_late_as_possible, as_early_as_possible):
        values = arguments_of(1)
        run_statements(program, before, values)
        run_cut(program, part, values)
        run_statements(program, (i for i in range(end) if i not in before and i not in part.indices), values)
        for name, value in zip(program.returns, expected, strict=True):
            assert torch.equal(values[name], value), (indices, cut_source(program, part))


@settings(deadline=None, max_examples=60)
@given(programs(), st.data())
def test_the_pieces_of_a_partition_one_after_another_are_the_program(source: str, data: st.DataObject) -> None:
    program = parse_program(source, "g")
    expected = returned_by(source)
    assume(expected is not None and program.statements)
    end = len(program.statements)
    assert expected is not None
    borders = sorted({0, end, *data.draw(st.lists(st.integers(0, end), max_size=4))})
    values = arguments_of(1)
    for start, stop in itertools.pairwise(borders):
        part = cut(program, range(start, stop), tensors=names_of(program))
        if part is None:
            run_statements(program, range(start, stop), values)
        else:
            run_cut(program, part, values)
    for name, value in zip(program.returns, expected, strict=True):
        assert torch.equal(values[name], value)


@settings(deadline=None, max_examples=60)
@given(programs(in_place=False), st.data())
def test_without_writes_in_place_every_used_range_can_be_cut(source: str, data: st.DataObject) -> None:
    program = parse_program(source, "g")
    end = len(program.statements)
    start = data.draw(st.integers(0, end - 1))
    stop = data.draw(st.integers(start + 1, end))
    reason = explain_cut(program, range(start, stop), tensors=names_of(program))
    assert reason in (None, "nothing that it makes is used")
