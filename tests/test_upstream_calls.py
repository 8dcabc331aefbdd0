"""Calls and spellings of GraphNet's full graphs that the allow-list lets through, and their forms that it does not."""

from __future__ import annotations

import pytest

from data.graph import Graph, MalformedGraphError
from data.model_check import check_model_source

ATTENTION = """torch.nn.functional.multi_head_attention_forward(
            x, x, x, 8, 1, w, b, None, None, False, {dropout}, w, b, training={training})"""


def check(expression: str, arguments: str = "x, w, b") -> None:
    """Refused or not, with no metas: only the source counts here."""
    source = (
        "import torch\n\nclass GraphModule(torch.nn.Module):\n\n"
        f"    def forward(self, {arguments}):\n        y = {expression}\n        return (y,)"
    )
    names = [argument.split(":")[0] for argument in arguments.split(", ")]
    metas = "".join(f'class M_{name}:\n\tname = "{name}"\n\tshape = [8]\n\tdtype = "torch.int64"\n' for name in names)
    check_model_source(Graph("g", {"model.py": source, "weight_meta.py": metas, "graph_net.json": "{}"}))


@pytest.mark.parametrize(
    "expression",
    [
        "x[(Ellipsis, slice(None, None, 2))]",
        "torch.nn.functional.linear(x, w, b)",
        "torch._native_multi_head_attention(x, x, x, 8, 1, w, b, w, b)",
        "torch._functorch.predispatch.lazy_load_decompositions()",
        "torch.ops.aten.sym_size.int(x, 1)",
        "torch.ops.aten._assert_scalar.default(w, 'positive')",
        "torch.autograd.function.FunctionCtx()",
        ATTENTION.format(dropout="0.0", training=True),
        ATTENTION.format(dropout="0.1", training=False),
    ],
)
def test_calls_of_full_graphs_are_allowed(expression: str) -> None:
    check(expression)


@pytest.mark.parametrize(
    "annotation", ["torch.Tensor", "torch.nn.parameter.Parameter", "torch.SymInt", "'anything as text'"]
)
def test_annotations_of_full_graphs_are_allowed(annotation: str) -> None:
    check("x + w", f"x: {annotation}, w")


@pytest.mark.parametrize(
    ("expression", "arguments", "words"),
    [
        (ATTENTION.format(dropout="0.1", training=True), "x, w, b", "drops at random"),
        (ATTENTION.format(dropout="w", training="x"), "x, w, b", "drops at random"),
        ("torch.autograd.function.once_differentiable(x)", "x, w", "not allowed"),
        ("torch.autograd.function.FunctionCtx().save_for_backward(x)", "x, w", "'save_for_backward' is not allowed"),
        ("x + w", "x: torch.nn.Module, w", "annotation"),
        ("x + w", "x: print(1), w", "annotation"),
        ("Ellipsis.__class__", "x, w", "attribute"),
        ("NotImplemented", "x, w", "neither an argument"),
    ],
)
def test_their_other_forms_are_refused(expression: str, arguments: str, words: str) -> None:
    with pytest.raises(MalformedGraphError, match=words):
        check(expression, arguments)
