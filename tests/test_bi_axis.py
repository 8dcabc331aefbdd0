"""The batch axis of graphs whose answer was written first (bi_axis_table.py), and what is done with rows."""

from __future__ import annotations

import argparse
import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from data.inputs import draw_inputs
from data.passbench import load_tasks
from eval_harness.batch_invariance.axis_reference import Reference
from eval_harness.batch_invariance.axis_resize import resized_graph
from eval_harness.batch_invariance.axis_shrink import SHRUNK_ABOVE, num_elements, shrunk
from eval_harness.batch_invariance.batch_axis import find_batch_layout
from eval_harness.batch_invariance.row_axis import BatchLayout, NotApplicable, RowAxis
from eval_harness.errors import UserError
from scripts.bi import axis as axis_verb
from tests.bi_axis_table import CASES, agrees, answer_of, case

BY_NAME = {line.name: line for line in CASES}


@pytest.mark.parametrize("line", CASES, ids=[line.name for line in CASES])
def test_the_axis_is_the_one_that_was_written_first(line):
    found = find_batch_layout(line.graph)
    assert agrees(line, found), f"expected {line.answer}, found {answer_of(found)}"


def test_the_table_is_large_enough_to_mean_something():
    assert len(BY_NAME) == len(CASES) >= 40
    assert sum(line.answer.startswith("none") for line in CASES) >= 15


@pytest.mark.parametrize(
    "name", ["conv_net", "sequence_first_attention", "place_in_an_expert_s_queue", "scaled_by_the_largest_value"]
)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_answer_does_not_hang_on_the_draw(name, seed):
    assert agrees(BY_NAME[name], find_batch_layout(BY_NAME[name].graph, seed=seed))


def test_every_bundled_task_has_a_batch_axis():
    for task in load_tasks("mini"):
        found = find_batch_layout(task.graphs[-1])
        assert isinstance(found, BatchLayout) and found.resizable, task.task_id
        assert all(a is not None and a.dim == 0 for a in found.outputs), task.task_id


def test_a_large_graph_is_searched_at_smaller_sizes_and_answered_at_its_own():
    body = "a = torch.softmax(in_0.view(12, 500, 2, 48), -1)\nreturn (a.view(12, 500, 96) + in_1,)"
    graph = case("large", "", body, in_0="12,500,96", in_1="500,1").graph
    small = shrunk(graph)
    assert num_elements(small) < num_elements(graph) / 20 < SHRUNK_ABOVE
    assert [len(spec.shape) for spec in small.specs.values()] == [3, 2]
    assert answer_of(find_batch_layout(graph)) == "0,- -> 0 [12]"


def test_a_graph_beyond_the_bound_is_not_run():
    graph = case("huge", "", "return (in_0 * 2,)", in_0="100000,100000").graph
    found = find_batch_layout(graph)
    assert isinstance(found, NotApplicable) and "10000000000 elements" in found.reason


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ("return (in_0.view(7, 9),)", "invalid"),
        ("return (in_0.item(),)", "item"),
        ("return (torch.log(in_0 - 1e9),)", "finite"),
        ("return (in_0[:0],)", "elements"),
        ("import os\nreturn (in_0,)", "not allowed"),
    ],
)
def test_a_graph_that_cannot_be_searched_says_why_in_a_line(body, word):
    found = find_batch_layout(case("bad", "", body, in_0="6,5").graph)
    assert isinstance(found, NotApplicable) and word in found.reason and "\n" not in found.reason


def test_the_process_wide_generator_is_not_touched():
    state = torch.random.get_rng_state()
    find_batch_layout(BY_NAME["random_numbers"].graph)
    find_batch_layout(BY_NAME["layer_norm"].graph)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_what_a_row_of_one_leaves_open_is_said():
    body = "return (torch.softmax(in_1 * 0.5 + in_0, -1),)"
    found = find_batch_layout(case("mask", "", body, in_0="1,1,6,6", in_1="1,4,6,6").graph)
    assert answer_of(found) == "0,0 -> 0 [1]" and found.ambiguous == (0,)
    both = find_batch_layout(case("two", "", "return (in_0 * 2, in_1 * 3)", in_0="1,6", in_1="1,6").graph)
    assert both.ambiguous == ()


@pytest.mark.parametrize(
    "name",
    ["baked_fold", "one_row_with_a_baked_view", "one_row_found_by_its_place", "windows_with_a_mask_of_the_window"],
)
@pytest.mark.parametrize("num_rows", [1, 7, 16])
def test_a_graph_with_other_rows_gives_the_old_rows_their_values(name, num_rows):
    graph = BY_NAME[name].graph
    layout = find_batch_layout(graph)
    other = resized_graph(graph, layout, num_rows)
    assert other is not None and (other is graph) == (num_rows == layout.size)
    ours, theirs = (list(draw_inputs(each, seed=3).values()) for each in (graph, other))
    rows = range(min(layout.size, num_rows))
    # the old rows in the last places: a view that folded the batch wrongly would move them
    places = range(num_rows - len(rows), num_rows)
    drawn = layout.replace(theirs, places, layout.select(ours, rows))
    mixed = [x if axis is None else y for axis, x, y in zip(layout.inputs, ours, drawn, strict=True)]
    expected = Reference.load(graph).run([x.double() for x in ours])
    found = Reference.load(other).run([x.double() for x in mixed])
    for axis, new, old in zip(layout.outputs, found, expected, strict=True):
        assert axis.size(new) == num_rows
        torch.testing.assert_close(axis.select(new, places), axis.select(old, rows))


def test_a_size_that_no_reading_of_the_literals_gives_is_none():
    graph = BY_NAME["baked_slice_of_few_rows"].graph
    assert resized_graph(graph, find_batch_layout(graph), 9) is None


AXES = st.builds(RowAxis, st.integers(0, 2), st.integers(1, 3), st.sampled_from(["outer", "inner"]))


@st.composite
def tensors(draw, axis, num_rows):
    shape = [draw(st.integers(1, 3)) for _ in range(3)]
    shape[axis.dim] = num_rows * axis.factor
    seed = draw(st.integers(0, 99))
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@settings(max_examples=60, deadline=None)
@given(st.data(), AXES, st.integers(1, 5), st.integers(1, 5))
def test_rows_that_are_taken_out_joined_and_put_back_are_the_rows(data, axis, num_rows, other_rows):
    tensor = data.draw(tensors(axis, num_rows))
    parts = [axis.select(tensor, [row]) for row in range(num_rows)]
    assert torch.equal(axis.join(parts), tensor)
    assert torch.equal(torch.cat([axis.by_row(part) for part in parts]), axis.by_row(tensor))
    assert axis.resized(tensor.shape, other_rows)[axis.dim] == other_rows * axis.factor
    rows = data.draw(st.lists(st.integers(0, num_rows - 1), min_size=1, max_size=num_rows, unique=True))
    values = axis.select(torch.full_like(tensor, 7.0), range(len(rows)))
    before = tensor.clone()
    changed = axis.replace(tensor, rows, values)
    assert torch.equal(tensor, before)
    for row in range(num_rows):
        same = bool((axis.by_row(changed)[row] == axis.by_row(tensor)[row]).all())
        assert same == (row not in rows)
    assert torch.equal(changed, axis.fill(tensor, rows, 7.0))


@settings(max_examples=40, deadline=None)
@given(AXES, st.integers(1, 6))
def test_an_index_belongs_to_the_row_that_select_takes_it_from(axis, num_rows):
    size = num_rows * axis.factor
    shape = [1, 1, 1]
    shape[axis.dim] = size
    positions = torch.arange(size).view(shape)
    for row in range(num_rows):
        taken = axis.select(positions, [row]).flatten()
        assert {axis.row_of(int(index), num_rows) for index in taken} == {row}


def test_inner_and_outer_order_by_hand():
    tensor = torch.arange(6)
    assert RowAxis(0, 2, "outer").select(tensor, [1]).tolist() == [2, 3]
    assert RowAxis(0, 2, "inner").select(tensor, [1]).tolist() == [1, 4]
    assert RowAxis(0, 2, "inner").join([torch.tensor([1, 2]), torch.tensor([3, 4])]).tolist() == [1, 3, 2, 4]


def test_an_axis_that_a_tensor_does_not_have_is_refused():
    with pytest.raises(ValueError, match="no rows along dim 0"):
        RowAxis(0, 4).size(torch.zeros(6))
    with pytest.raises(ValueError, match="factor >= 1"):
        RowAxis(0, 0)


def test_the_verb_prints_each_graph_and_writes_json(capsys, tmp_path):
    parser = argparse.ArgumentParser()
    axis_verb.add_arguments(parser)
    target = tmp_path / "axes.json"
    assert axis_verb.run(parser.parse_args(["mini/llama_rms_norm", "--first", "--json", str(target)])) == 0
    shown = capsys.readouterr()
    assert "2 rows: in_0 shared, in_1 dim 0 -> dim 0; resizable" in shown.out
    assert "1 graphs: 1 have a batch axis, 1 of these can be resized" in shown.err
    (entry,) = json.loads(target.read_text())
    assert entry["layout"]["inputs"] == {"in_0": None, "in_1": {"dim": 0, "factor": 1, "order": "outer"}}
    with pytest.raises(UserError, match="no such graph"):
        axis_verb.run(parser.parse_args(["mini/llama_rms_norm", "--graph", "none"]))
