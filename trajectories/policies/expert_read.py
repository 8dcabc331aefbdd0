"""Reads a graph's model.py into nodes by AST alone: no torch, nothing executed."""

from __future__ import annotations

import ast
from typing import Any

from data.graph import Graph
from trajectories.policies.expert_ir import Dtype, Node, OutsideFamiliesError, Program, Ref, Statement
from trajectories.policies.expert_shapes import infer


def read_program(graph: Graph) -> Program:
    """Parse a graph. Raises OutsideFamiliesError for statements other than assignments of single names."""
    return _Reader(graph).read()


class _Reader:
    def __init__(self, graph: Graph) -> None:
        self.nodes: list[Node] = []
        self.names: dict[str, int] = {}
        self.statements: list[Statement] = []
        self.arguments = graph.arguments
        for argument in graph.arguments:
            spec = graph.specs[argument]
            self.names[argument] = self._add(
                Node("input", (), {}, spec.shape, spec.dtype.removeprefix("torch."), -1, argument)
            )
        module = ast.parse(graph.model_source)
        self.body = next(
            item.body
            for node in module.body
            if isinstance(node, ast.ClassDef)
            for item in node.body
            if isinstance(item, ast.FunctionDef) and item.name == "forward"
        )

    def read(self) -> Program:
        for statement in self.body:
            if isinstance(statement, ast.Return):
                value = statement.value
                items = value.elts if isinstance(value, ast.Tuple | ast.List) else [value]
                if not all(isinstance(item, ast.Name) for item in items):
                    raise OutsideFamiliesError("it returns an expression rather than names")
                returns = tuple(item.id for item in items if isinstance(item, ast.Name))
                return Program(self.nodes, self.statements, self.arguments, returns, dict(self.names))
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                continue
            self._assign(statement)
        raise OutsideFamiliesError("forward has no return")

    def _assign(self, statement: ast.stmt) -> None:
        if (
            isinstance(statement, ast.Assign)
            and isinstance(statement.value, ast.Constant)
            and statement.value.value is None
        ):
            return  # `tmp_0 = None` only drops a reference
        if not (isinstance(statement, ast.Assign) and len(statement.targets) == 1):
            raise OutsideFamiliesError(f"the statement `{ast.unparse(statement)[:60]}` is not a plain assignment")
        target = statement.targets[0]
        if not isinstance(target, ast.Name):
            raise OutsideFamiliesError(f"the statement `{ast.unparse(statement)[:60]}` sets more than one name")
        reads = [node.id for node in ast.walk(statement.value) if isinstance(node, ast.Name) and node.id in self.names]
        value = self._value(statement.value)
        if not isinstance(value, Ref):
            value = Ref(self._add(Node("const", (value,), {}, None, None)))
        self.nodes[value.node].name = self.nodes[value.node].name or target.id
        if target.id in self.names:
            raise OutsideFamiliesError(f"the variable {target.id} is set twice")
        self.names[target.id] = value.node
        text, unique = ast.unparse(statement), tuple(dict.fromkeys(reads))
        self.statements.append(Statement(text, unique, target.id, value.node))

    def _add(self, node: Node) -> int:
        if node.op != "input":
            node.statement = len(self.statements)
        self.nodes.append(node)
        return len(self.nodes) - 1

    def _op(self, op: str, *args: Any, **kwargs: Any) -> Ref:
        node = Node(op, args, kwargs)
        infer(node, self.nodes)
        return Ref(self._add(node))

    def _value(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Name):
            if node.id in self.names:
                return Ref(self.names[node.id])
            if node.id in ("inf", "nan"):
                return float(node.id)
            if node.id == "Ellipsis":
                return Ellipsis
            raise OutsideFamiliesError(f"the name {node.id!r} is not set")
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Tuple | ast.List):
            return tuple(self._value(item) for item in node.elts)
        if isinstance(node, ast.Slice):
            return slice(*(None if part is None else self._value(part) for part in (node.lower, node.upper, node.step)))
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        if isinstance(node, ast.UnaryOp):
            value = self._value(node.operand)
            if not isinstance(value, Ref):
                return -value if isinstance(node.op, ast.USub) else value
            return self._op({"USub": "neg", "Invert": "bitwise_not"}.get(type(node.op).__name__, "?"), value)
        if isinstance(node, ast.BinOp):
            left, right = self._value(node.left), self._value(node.right)
            return self._op(_OPERATORS.get(type(node.op).__name__, "?"), left, right)
        if isinstance(node, ast.Compare):
            return self._op(
                type(node.ops[0]).__name__.lower(), self._value(node.left), self._value(node.comparators[0])
            )
        if isinstance(node, ast.Subscript):
            return self._op("getitem", self._value(node.value), self._value(node.slice))
        if isinstance(node, ast.Call):
            return self._call(node)
        raise OutsideFamiliesError(f"the expression `{ast.unparse(node)[:60]}` is new to me")

    def _attribute(self, node: ast.Attribute) -> Any:
        text = ast.unparse(node)
        if text.startswith("torch."):
            return Dtype(text.removeprefix("torch."))
        raise OutsideFamiliesError(f"the attribute `{text[:60]}` is new to me")

    def _call(self, node: ast.Call) -> Any:
        kwargs = {keyword.arg: self._value(keyword.value) for keyword in node.keywords if keyword.arg}
        args = [self._value(arg) for arg in node.args]
        if isinstance(node.func, ast.Name):
            if node.func.id == "float":
                return float(args[0])
            if node.func.id == "slice":
                return slice(*args)
            return Dtype("device")  # device(type=..., index=...)
        if not isinstance(node.func, ast.Attribute):
            raise OutsideFamiliesError(f"the call `{ast.unparse(node)[:60]}` is new to me")
        if ast.unparse(node.func).startswith("torch."):
            if node.func.attr == "device":
                return Dtype("device")
        else:
            args.insert(0, self._value(node.func.value))
        return self._op(ALIASES.get(node.func.attr, node.func.attr), *args, **kwargs)


_OPERATORS = {
    "Add": "add",
    "Sub": "sub",
    "Mult": "mul",
    "Div": "div",
    "Pow": "pow",
    "MatMult": "matmul",
    "BitAnd": "bitwise_and",
    "BitOr": "bitwise_or",
}
ALIASES = {
    "true_divide": "div",
    "divide": "div",
    "multiply": "mul",
    "subtract": "sub",
    "negative": "neg",
    "view_as": "?",
    "logical_not": "bitwise_not",
    "logical_and": "bitwise_and",
    "logical_or": "bitwise_or",
    "greater": "gt",
    "less": "lt",
    "clip": "clamp",
    "clamp_min": "clamp",
    "scaled_dot_product_attention": "attention",
}
