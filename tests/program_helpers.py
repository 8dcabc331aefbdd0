"""Programs of a few lines for tests of statements and cuts, and how to run parts of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from data.construct.cutting import Cut, cut_source
from data.construct.statements import Program, parse_program

HEAD = "import torch\nclass GraphModule(torch.nn.Module):\n    def forward(self, {arguments}):\n"


def source_of(body: str, arguments: str = "x, y") -> str:
    return HEAD.format(arguments=arguments) + "".join(f"        {line}\n" for line in body.splitlines())


def program_of(body: str, arguments: str = "x, y") -> Program:
    return parse_program(source_of(body, arguments), "g/model.py")


def names_of(program: Program) -> set[str]:
    """Every value, for programs in which all of them are tensors."""
    return {*program.arguments, *program.definitions}


def module_of(source: str) -> torch.nn.Module:
    namespace: dict[str, Any] = {}
    exec(source, namespace)
    return namespace["GraphModule"]()


def run_statements(program: Program, indices: Iterable[int], values: dict[str, Any]) -> None:
    for index in indices:
        exec("\n".join(program.statements[index].lines), {"torch": torch, "device": torch.device}, values)


def run_cut(program: Program, part: Cut, values: dict[str, Any], module: Callable[..., Any] | None = None) -> None:
    """Alone: inputs and outputs have storage of their own."""
    module = module or module_of(cut_source(program, part))
    outputs = module(*(values[name].clone() for name in part.inputs))
    values.update((name, output.clone()) for name, output in zip(part.outputs, outputs, strict=True))
