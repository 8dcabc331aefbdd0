"""Captured devices in the source of a graph -> the machine's device. Works on syntax trees, executes nothing."""

from __future__ import annotations

import ast
import re

_CUDA_STRING = re.compile(r"^cuda(:\d+)?$")


def map_devices(tree: ast.Module, *, captured: str, target: str) -> ast.Module:
    """Replace device(type=captured, ...) and, whatever was captured, "cuda:0" strings and .cuda() by the target."""
    return ast.fix_missing_locations(_DeviceMapper(captured, target).visit(tree))


def dotted_name(node: ast.expr) -> str:
    """'torch.nn.functional.relu' for a path that starts at the name torch, else ''."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join(["torch", *reversed(parts)]) if isinstance(node, ast.Name) and node.id == "torch" else ""


class _DeviceMapper(ast.NodeTransformer):
    def __init__(self, captured: str, target: str) -> None:
        self.captured = captured
        self.target = target

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if (isinstance(node.func, ast.Name) and node.func.id == "device") or dotted_name(node.func) == "torch.device":
            arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
            types = [a.value for a in arguments if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            if types and types[0].split(":")[0] == self.captured:
                return ast.Call(node.func, [ast.Constant(self.target)], [])
            return node
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "cuda" and not dotted_name(node.func):
            return ast.Call(ast.Attribute(node.func.value, "to", ast.Load()), [ast.Constant(self.target)], [])
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, str) and _CUDA_STRING.match(node.value):
            return ast.Constant(self.target)
        return node
