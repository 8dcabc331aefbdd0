"""The fast readers agree with a syntax tree on everything that they answer, and answer for what PassNet writes."""

from __future__ import annotations

import ast
import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data.passbench import load_tasks
from data.plain_forms import plain_forward_arguments, read_plain_metas

MINI = [graph for task in load_tasks("mini") for graph in task.graphs]


def by_syntax_tree(text: str) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for node in ast.parse(text).body:
        assert isinstance(node, ast.ClassDef)
        fields = {}
        for statement in node.body:
            assert isinstance(statement, ast.Assign)
            assert isinstance(statement.targets[0], ast.Name)
            value = statement.value
            is_float = isinstance(value, ast.Call)
            fields[statement.targets[0].id] = float(value.args[0].value) if is_float else ast.literal_eval(value)  # type: ignore[attr-defined]
        found.append((node.name, fields))
    return found


def test_every_bundled_graph_is_plain_and_read_alike() -> None:
    for graph in MINI:
        text = graph.files["weight_meta.py"]
        assert read_plain_metas(text) == by_syntax_tree(text)
        assert plain_forward_arguments(graph.model_source) == graph.arguments


names = st.sampled_from(["name", "shape", "data", "std", "Program_weight_tensor_meta_x", "_", "a1"])
numbers = st.one_of(st.integers(-(10**12), 10**12).map(str), st.floats(allow_nan=False, allow_infinity=False).map(repr))
values = st.one_of(
    numbers,
    st.just("None"),
    st.text("ab \\\"'\n\t#\u00e9", max_size=6).map(repr),
    st.sampled_from(['float("nan")', "float('-inf')", "[]", "True", "007", "1_000", '"a" "b"', "[1, [2]]", "nan", "x"]),
    st.lists(numbers, max_size=4).map(lambda items: f"[{', '.join(items)}]"),
    st.lists(numbers, min_size=1, max_size=4).map(
        lambda items: "[\n" + "".join(f"        {i},\n" for i in items) + "    ]"
    ),
    names.map(lambda name: f'(\n        "{name}"\n    )'),
)
metas = st.lists(st.tuples(names, st.lists(st.tuples(names, values), max_size=4)), max_size=3)


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(metas, st.sampled_from(["\t", "    "]))
def test_what_is_answered_is_what_a_syntax_tree_gives(classes: list[Any], indent: str) -> None:
    text = "\n\n".join(
        f"class {name}:\n" + "".join(f"{indent}{field} = {value}\n" for field, value in fields)
        for name, fields in classes
    )
    found = read_plain_metas(text)
    if found is not None:
        expected = by_syntax_tree(text)
        assert repr(found) == repr(expected)  # repr: nan equals nan, and 1 is not 1.0


@pytest.mark.parametrize(
    "text",
    [
        "class A:\n\tname = open('x')\n",
        "class A:\n\tname = 'a\\x41'\n",
        "class A:\n\tdata = [\n\t\t1,\n",
        "class A:\n\tname = (\n\t\t'a',\n\t)\n",
        "class A:\nclass B:\n\tname = 'b'\n",
        "x = 1\n",
        "class A(object):\n\tname = 'a'\n",
        "class A:\n\tdef f(self): pass\n",
        "import os\n",
    ],
)
def test_other_forms_are_left_to_the_slow_reader(text: str) -> None:
    assert read_plain_metas(text) is None


def test_nan_and_empty_files() -> None:
    assert read_plain_metas("") == []
    found = read_plain_metas('class A:\n\tstd = float("nan")\n')
    assert found is not None
    assert math.isnan(found[0][1]["std"])


@pytest.mark.parametrize(
    ("old", "new", "plain"),
    [
        ("self, ", "\n        self,\n        ", True),
        ("in_0", "in_0: torch.Tensor", True),
        ("return", "retrun (", False),  # no Python: the slow reader names the line
        ("    def forward", "    x = 1\n    def forward", False),
        ("def forward(self, ", "def forward(self, a=(1, 2), ", False),
        ("class GraphModule", "class GraphModule:\n    pass\n\n\nclass GraphModule", False),
        ("tmp_0 =", "def f(): pass\n        tmp_0 =", False),
    ],
)
def test_another_layout_of_the_model_is_left_to_the_slow_reader(old: str, new: str, plain: bool) -> None:
    graph = MINI[0]
    source = graph.model_source.replace(old, new, 1)
    assert source != graph.model_source
    assert plain_forward_arguments(source) == (graph.arguments if plain else None)
