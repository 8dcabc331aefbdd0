"""Graphs and rules written in a test, for the tests of tracing, matching, rewriting and coverage."""

from __future__ import annotations

import textwrap
import types

import torch

from data.graph import Graph
from eval_harness.candidate_process.rules import describe_rule
from eval_harness.rewriting import RuleDescription
from eval_harness.tracing import TracedGraph, trace_graph

F32, F16, BF16 = "float32", "float16", "bfloat16"


def make_graph(body: str, *, data: dict[str, object] | None = None, **specs: tuple[tuple[int, ...], str]) -> Graph:
    """A graph whose forward has `body`, over arguments name=(shape, dtype)."""
    source = (
        "import torch\nfrom torch import device\n\n\nclass GraphModule(torch.nn.Module):\n"
        f"    def forward(self, {', '.join(specs)}):\n" + textwrap.indent(textwrap.dedent(body).strip("\n"), " " * 8)
    )
    metas = [
        f"class Program_weight_tensor_meta_{name}:\n\tname = {name!r}\n\tshape = {list(shape)}\n"
        f'\tdtype = "torch.{dtype}"\n\tdevice = "cuda:0"\n\tmean = 0.0\n\tstd = 1.0\n'
        for name, (shape, dtype) in specs.items()
    ]
    return Graph("graph", {"model.py": source, "weight_meta.py": "\n\n".join(metas), "graph_net.json": "{}"})


def traced(body: str, **specs: tuple[tuple[int, ...], str]) -> TracedGraph:
    return trace_graph(make_graph(body, **specs))


def draw(graph: Graph, seed: int = 0) -> list[torch.Tensor]:
    """Plain inputs: normal floats, integers in 0..3."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for name in graph.arguments:
        spec = graph.specs[name]
        dtype = getattr(torch, spec.dtype.removeprefix("torch."))
        if dtype.is_floating_point:
            found.append(torch.randn(spec.shape, generator=generator).to(dtype))
        else:
            found.append(torch.randint(0, 2 if dtype is torch.bool else 4, spec.shape, generator=generator).to(dtype))
    return found


def rule_module(pattern: str, *, args: str | None = None, name: str = "Rule", extra: str = "") -> types.ModuleType:
    """An imported rule file. pattern: text of the function; args: body of replacement_args (default: all arguments)."""
    pattern = textwrap.dedent(pattern).strip("\n")
    parameters = pattern.split("(", 1)[1].split("):", 1)[0]
    names = [item.split("=")[0].strip() for item in parameters.split(",")]
    returned = args or f"return ({', '.join(names)},)"
    source = (
        f"import torch\nfrom torch import device\n{textwrap.dedent(extra)}\n{pattern}\n\n"
        f"def replacement_args({parameters}):\n{textwrap.indent(textwrap.dedent(returned), '    ')}\n\n"
        "def kernel(*args):\n    return args[0]\n\n\ndef replacement_func():\n    return kernel\n"
    )
    module = types.ModuleType(name)
    exec(compile(source, f"{name}.py", "exec"), module.__dict__)
    return module


def make_rule(pattern: str, *, args: str | None = None, name: str = "Rule") -> RuleDescription:
    """A rule as the judge gets it: described, and read back from JSON data."""
    return RuleDescription.from_json(describe_rule(rule_module(pattern, args=args, name=name), name))
