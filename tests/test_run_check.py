"""Which graphs may become a part of a task, each refusal with its reason, and never an exception."""

from __future__ import annotations

import re
import time

import pytest

from data.construct.run_check import check_instance
from data.graph import Graph
from data.passbench import load_tasks


def graph_of(body: str, *specs: tuple[list[int], str], extra: str = "") -> Graph:
    """A graph with the arguments in_0, in_1, ... of (shape, dtype); body: the lines of forward."""
    names = [f"in_{index}" for index in range(len(specs))]
    metas = [
        f'class Program_weight_tensor_meta_{name}:\n\tname = "{name}"\n\tshape = {shape}\n'
        f'\tdtype = "torch.{dtype}"\n{extra}'
        for name, (shape, dtype) in zip(names, specs, strict=True)
    ]
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    source = f"import torch\nclass GraphModule(torch.nn.Module):\n    def forward(self, {', '.join(names)}):\n{lines}"
    return Graph("g", {"model.py": source, "weight_meta.py": "\n".join(metas), "graph_net.json": "{}"})


FLOATS = ([4, 8], "float32")


@pytest.mark.parametrize(
    ("body", "specs"),
    [
        ("return (torch.relu(in_0 + in_1),)", (FLOATS, FLOATS)),
        ("in_0 += in_1\ntmp_0 = in_0\nreturn (tmp_0,)", (FLOATS, FLOATS)),  # arguments are drawn anew
        ("return (in_0.sum(),)", (FLOATS,)),  # one element is not constant
        ("return (in_0 > 0, in_0.argmax(-1))", (FLOATS,)),
        ("return (torch.nn.functional.embedding(in_0, in_1),)", (([3, 5], "int64"), ([2, 4], "bfloat16"))),
        ("return (torch.complex(in_0, in_1),)", (FLOATS, FLOATS)),
    ],
)
def test_graphs_that_may_stay(body: str, specs: tuple[tuple[list[int], str], ...]) -> None:
    assert check_instance(graph_of(body, *specs)) is None


@pytest.mark.parametrize(
    ("body", "specs", "reason"),
    [
        ("return (in_0 * 0,)", (FLOATS,), "output 0 does not vary with robust inputs"),
        ("return (in_0 + 1, torch.arange(4))", (FLOATS,), "output 1 does not vary with robust inputs"),
        ("tmp_0 = in_0.sum().expand(3)\nreturn (tmp_0,)", (FLOATS,), "output 0 is one value everywhere"),
        ("return (torch.log(in_0),)", (FLOATS,), "output 0 is not finite with robust inputs"),
        ("return (in_0,)", (([4, 0], "float32"),), r"in_0 has shape \[4, 0\]: no elements"),
        ("return (in_0[4:].sum() + in_0,)", (FLOATS,), r"makes a tensor of shape \[0, 8\]: no elements"),
        ("return (in_0,)", (([4096, 4200], "float32"),), "its arguments take 66 MiB, more than 64"),
        ("tmp_0 = in_0.view(-1, 1) * in_0.view(1, -1)\nreturn (tmp_0,)", (([5000], "float32"),), "more than 64 MiB"),
        ("return (in_0 @ in_0,)", (FLOATS,), "does not run: RuntimeError: mat1 and mat2"),
        ("return in_0 + 1", (FLOATS,), "forward returns no tuple of tensors"),
        ("return (in_0 + 1, in_0.shape)", (FLOATS,), "output 1 is no tensor but Size"),
        ("return (torch.rand(4) + in_0,)", (([4], "float32"),), "g/model.py:4: torch.rand draws random numbers"),
        ("return (in_0.numpy(),)", (FLOATS,), "g/model.py:4: .numpy"),
        ("return (torch.load(in_0),)", (FLOATS,), "call of torch.load is not allowed"),
        ("return (tmp_0,)", (FLOATS,), "'tmp_0' is neither an argument nor assigned before"),
    ],
)
def test_refusals_say_why_in_one_line(body: str, specs: tuple[tuple[list[int], str], ...], reason: str) -> None:
    found = check_instance(graph_of(body, *specs))
    assert found is not None and "\n" not in found
    assert re.search(reason, found), found


def test_what_an_operator_makes_besides_its_result_is_its_own_business() -> None:
    body = "tmp_0 = torch.nn.functional.batch_norm(in_0, in_1, in_1, None, None, False, 0.1, 1e-05)\nreturn (tmp_0,)"
    half = "float16"  # batch_norm also makes two empty tensors for a backward pass
    graph = graph_of(body, ([2, 3, 4], half), ([3], half), extra="\tmean = 1.0\n\tstd = 0.1\n")
    assert check_instance(graph) is None


def test_memory_is_counted_once_for_views_and_again_for_copies() -> None:
    views = "\n".join(f"tmp_{i} = in_0.view(8, 4)" for i in range(50))
    spec = ([4, 8], "float32")  # 128 bytes
    assert check_instance(graph_of(f"{views}\nreturn (tmp_0 + 1,)", spec), max_bytes=300) is None
    copies = "\n".join(f"tmp_{i} = in_0 * {i}" for i in range(50))
    found = check_instance(graph_of(f"{copies}\nreturn (tmp_1,)", spec), max_bytes=300)
    assert found is not None and "one run makes more than" in found


def test_a_slow_graph_is_left_between_its_operators() -> None:
    body = "\n".join(["tmp_0 = in_0 @ in_0", *["tmp_0 = tmp_0 @ in_0"] * 400, "return (tmp_0,)"])
    start = time.monotonic()
    found = check_instance(
        graph_of(body, ([700, 700], "float32"), extra="\tmean = 0.0\n\tstd = 0.01\n"), time_limit_s=0.05
    )
    assert found == "takes longer than 0.05 s"
    assert time.monotonic() - start < 15.0


def test_a_draw_that_cannot_be_made_is_a_reason() -> None:
    found = check_instance(graph_of("return (in_0,)", ([3], "float32"), extra="\tdata = [1.0, 2.0]\n"))
    assert found is not None and "data holds 2 values, shape [3] needs 3" in found


def test_bundled_graphs_pass_and_a_small_one_takes_milliseconds() -> None:
    graphs = [task.graphs[0] for task in load_tasks("mini")]
    assert [graph.name for graph in graphs if check_instance(graph, time_limit_s=60)] == []
    small = min(graphs, key=lambda graph: sum(spec.num_elements for spec in graph.specs.values()))
    seconds = []
    for _ in range(5):
        start = time.process_time()
        check_instance(small)
        seconds.append(time.process_time() - start)
    assert min(seconds) < 0.1
