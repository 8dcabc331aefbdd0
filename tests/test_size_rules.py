"""How sizes in a statement follow those of its operands: cases from real graphs, and what holds for any view."""

from __future__ import annotations

import ast
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.construct.size_literals import literals_that_follow
from data.construct.size_rules import NotFollowedError, SeenSizes, axes_of, follow_expand, follow_view


def same(*sizes: int) -> list[tuple[int, int]]:
    return [(size, size) for size in sizes]


@pytest.mark.parametrize(
    ("axes", "sizes", "after"),
    [
        ([(2, 4), (10, 14), (24, 24)], [2, 10, 3, 8], [4, 14, 3, 8]),  # heads apart
        ([(2, 4), (10, 14), (24, 24)], [20, 24], [56, 24]),  # rows together
        ([(2, 4), *same(1, 64)], [2, 64], [4, 64]),
        ([(1, 3), *same(64, 32)], [64, 32], [192, 32]),  # a batch of 1 that is merged
        ([(16, 24), *same(49, 32)], [2, 8, 49, 32], [3, 8, 49, 32]),  # windows apart: the first size takes the rest
        ([(56, 28), (56, 28), *same(96)], [8, 7, 8, 7, 96], [4, 7, 4, 7, 96]),
        (same(2, 3), [6], [6]),
        ([(2, 4)], [1, 2, 1], [1, 4, 1]),
    ],
)
def test_views_of_real_graphs(axes: list[tuple[int, int]], sizes: list[int], after: list[int]) -> None:
    assert follow_view(axes, sizes) == after


def test_a_size_that_is_changed_on_purpose_is_tried_first() -> None:
    axes = [*same(45), (4, 8), *same(45)]  # a batch of 1 and 4 heads, merged, then split again
    assert follow_view(axes, [45, 1, 4, 45], changes=[(1, 2)]) == [45, 2, 4, 45]
    assert follow_view(axes, [45, 1, 4, 45]) == [45, 1, 8, 45]


def test_views_that_do_not_follow() -> None:
    with pytest.raises(NotFollowedError, match="no size of"):
        follow_view([(196, 49)], [14, 14])  # a square that is no square of whole patches
    with pytest.raises(NotFollowedError, match="is no view of"):
        follow_view(same(4, 4), [3, 5])
    with pytest.raises(NotFollowedError, match="2 axes before and 1 after"):
        axes_of((2, 3), (6,))


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=4),
    st.data(),
)
def test_a_view_that_follows_holds_the_new_elements(axes: list[tuple[int, int]], data: Any) -> None:
    sizes = [before for before, _ in axes]
    for _ in range(data.draw(st.integers(0, 3))):  # merge neighbours, or split an axis
        place = data.draw(st.integers(0, len(sizes) - 1))
        if data.draw(st.booleans()) and place + 1 < len(sizes):
            sizes[place : place + 2] = [sizes[place] * sizes[place + 1]]
        else:
            divisor = data.draw(st.sampled_from([d for d in range(1, sizes[place] + 1) if sizes[place] % d == 0]))
            sizes[place : place + 1] = [divisor, sizes[place] // divisor]
    assert follow_view([(before, before) for before, _ in axes], sizes) == sizes
    try:
        after = follow_view(axes, sizes)
    except NotFollowedError:
        return
    assert len(after) == len(sizes)
    assert math.prod(after) == math.prod(new for _, new in axes)


def test_expansions_follow_their_operand_first() -> None:
    seen = SeenSizes()
    seen.note([(10, 14), (2, 4)])
    assert follow_expand([(2, 4), *same(1, 1), (10, 14)], [2, 1, 10, 10], seen) == [4, 1, 14, 14]
    assert follow_expand([*same(1), (10, 14)], [-1, 10], seen) == [-1, 14]


def test_a_large_size_that_may_stay_or_follow_is_refused() -> None:
    seen = SeenSizes()
    seen.note([(64, 128), (64, 64), (3, 5), (3, 3)])
    assert seen.follow(3) == 3 and seen.follow(7) == 7
    with pytest.raises(NotFollowedError, match="64 may stay or follow"):
        seen.follow(64)


class Shaped:
    def __init__(self, *shape: int) -> None:
        self.shape = shape


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("y = x.view(2, 10, 3, 8)", "y = x.view(4, 14, 3, 8)"),
        ("y = torch.reshape(x, (2, -1, 24))", "y = torch.reshape(x, (4, -1, 24))"),
        ("y = x.view(-1, 24)", "y = x.view(-1, 24)"),
        ("y = x.expand(2, 10, 24)", "y = x.expand(4, 14, 24)"),
        (
            "y = torch.nn.functional.layer_norm(x, (10, 24), None)",
            "y = torch.nn.functional.layer_norm(x, (14, 24), None)",
        ),
        ("y = torch.arange(10, device = d)", "y = torch.arange(14, device = d)"),
        ("y = torch.arange(0, 10, 2)", "y = torch.arange(0, 14, 2)"),  # 2 is a step here, and the batch above
        ("y = torch.zeros((2, 10), dtype = d)", "y = torch.zeros((4, 14), dtype = d)"),
        ("y = x.new_full((2, 10), 10.0)", "y = x.new_full((4, 14), 10.0)"),
        ("y = t[:, :10]", "y = t[:, :14]"),  # of a longer table
        (
            "y = t[(slice(None, None, None), slice(0, 10, None))]",
            "y = t[(slice(None, None, None), slice(0, 14, None))]",
        ),
        ("y = x[:, :2]", "y = x[:, :2]"),  # small: two tokens, not the batch
        ("y = x[:2]", "y = x[:4]"),  # all of the leading axis
        ("y = x[..., :12]", "y = x[..., :12]"),
        ("x[:, 0:10] = 1", "x[:, 0:14] = 1"),
        ("y = x.transpose(1, 2)", "y = x.transpose(1, 2)"),
        ("y = torch.roll(x, shifts = (10, 2), dims = (1, 2))", "y = torch.roll(x, shifts = (10, 2), dims = (1, 2))"),
    ],
)
def test_literals_of_statements(line: str, expected: str) -> None:
    before = {"x": Shaped(2, 10, 24), "t": Shaped(1, 512)}
    after = {"x": Shaped(4, 14, 24), "t": Shaped(1, 512)}
    seen = SeenSizes([(2, 4), (10, 14)])
    seen.note([(2, 4), (10, 14), (24, 24), (1, 1), (512, 512)])

    def evaluate(names: dict[str, Shaped]) -> Any:
        return lambda node: eval(compile(ast.Expression(node), "<test>", "eval"), {}, names)

    statement = ast.parse(line).body[0]
    for node, size in literals_that_follow(statement, evaluate(before), evaluate(after), seen):
        node.value = size
    assert ast.unparse(statement) == ast.unparse(ast.parse(expected))
