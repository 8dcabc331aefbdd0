"""No operator sequence on both sides of a split, however it is spelled."""

from __future__ import annotations

from dataclasses import replace

import pytest

from data.graph import Graph
from data.passbench import load_tasks
from data.splits import leak_report, operator_sequence, split_tasks
from data.task import Task

META = 'class Program_weight_tensor_meta_x:\n\tname = "x"\n\tshape = [{size}]\n\tdtype = "torch.float32"\n'


def graph_of(body: str, size: int = 4, name: str = "g") -> Graph:
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    source = f"import torch\nclass GraphModule(torch.nn.Module):\n    def forward(self, x):\n{lines}"
    return Graph(name, {"model.py": source, "weight_meta.py": META.format(size=size), "graph_net.json": "{}"})


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("y = x + x\nz = torch.relu(y)\ny = None\nreturn (z,)", "add relu"),
        ("y = torch.add(x, x)\nz = y.relu_()\nreturn (z,)", "add relu"),
        ("x += 1\nx[0] = x.sin()\nreturn (x,)", "add sin setitem"),
        ("return (torch.nn.functional.silu(x * -1) / (x < 0),)", "mul silu lt div"),
        ("y = x[(slice(None, 2, None), -1)]\nz = -y\nreturn (z,)", "getitem neg"),
        ("y = torch.ops.aten.index.Tensor(x, [None])\nreturn (y,)", "index"),
        ("y = torch.zeros(2, device = device(type='cuda', index=0))\nreturn (y,)", "zeros"),
        ("y = torch.cat([x.abs(), x], dim = -1)\nreturn (y,)", "abs cat"),
    ],
)
def test_operator_sequence(body: str, expected: str) -> None:
    assert " ".join(operator_sequence(graph_of(body))) == expected


def tasks_of(*bodies: str) -> list[Task]:
    return [Task(f"task_{i}", (graph_of(f"y = {body}\nreturn (y,)", size=i + 1),)) for i, body in enumerate(bodies)]


def test_tasks_with_one_sequence_stay_together() -> None:
    tasks = tasks_of("x + 1", "torch.add(x, 2)", "x * 2", "x.sin()", "x.cos()", "x.exp()", "x.mul(3)", "x.tan()")
    for seed in range(20):
        split = split_tasks(tasks, 0.25, seed)
        assert [task.task_id for task in split] == [task.task_id for task in tasks]
        assert split[0].split == split[1].split
        assert split[2].split == split[6].split
        assert 1 <= sum(task.split == "eval" for task in split) <= 3
        assert leak_report(split).clean
    assert split_tasks(tasks, 0.25, 3) == split_tasks(tasks, 0.25, 3)
    assert len({tuple(task.split for task in split_tasks(tasks, 0.25, seed)) for seed in range(20)}) > 3


def test_a_task_with_two_sequences_ties_others_together() -> None:
    both = Task("both", (graph_of("return (x.sin(),)", name="a"), graph_of("return (x.cos(),)", name="b")))
    tasks = [*tasks_of("x.sin()", "x.cos()", "x.exp()"), both]
    for seed in range(10):
        split = split_tasks(tasks, 0.3, seed)
        assert len({split[0].split, split[1].split, split[3].split}) == 1


def test_shares_at_the_ends() -> None:
    tasks = tasks_of("x.sin()", "x.cos()")
    assert {task.split for task in split_tasks(tasks, 0.0, 0)} == {"train"}
    assert {task.split for task in split_tasks(tasks, 1.0, 0)} == {"eval"}
    assert sorted(task.split for task in split_tasks(tasks, 0.01, 0)) == ["eval", "train"]
    with pytest.raises(ValueError, match="eval_share"):
        split_tasks(tasks, 1.5, 0)


def test_leak_report_names_what_leaks() -> None:
    one, two, three = tasks_of("x + 1", "x.add(2)", "(x + 1).relu()")
    copy = Task("copy", (replace(one).graphs[0],), split="eval")
    report = leak_report([replace(one, split="train"), replace(two, split="eval"), replace(three, split="eval"), copy])
    assert not report.clean
    assert ("task_0", "task_1", ("add",)) in report.shared_sequences
    assert [(a, b) for a, b, _ in report.shared_graphs] == [("task_0", "copy")]
    assert report.contained_sequences == [("task_0", "task_2")]
    assert any("share add" in line for line in report.lines())


def test_the_bundled_splits_do_not_leak() -> None:
    tasks = load_tasks("mini")
    report = leak_report(tasks)
    assert report.clean, report.lines()
    assert set(report.num_tasks) == {"train", "eval"}
    assert report.num_tasks["eval"] >= 5
    for task in tasks:  # a task is one family
        assert len({operator_sequence(graph) for graph in task.graphs}) == 1, task.task_id
