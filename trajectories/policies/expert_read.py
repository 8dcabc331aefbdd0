"""Reads a graph's model.py into nodes by AST alone: no torch, nothing executed."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from data.graph import Graph
from data.syntax import parse_source
from trajectories.policies.expert_infer import infer
from trajectories.policies.expert_ir import SAME, VIEWS, Dtype, Node, OutsideFamiliesError, Program, Ref, Statement


def read_program(graph: Graph) -> Program:
    """Parse a graph. Raises OutsideFamiliesError for statements other than assignments of single names."""
    return _Reader(graph).read()


class _Reader:
    def __init__(self, graph: Graph) -> None:
        self.nodes: list[Node] = []
        self.names: dict[str, int] = {}
        """Key of each value of a variable (see Statement.sets) -> node."""
        self.keys: dict[str, str] = {}
        """Variable -> key of the value that it has now."""
        self.statements: list[Statement] = []
        self.arguments = graph.arguments
        for argument in graph.arguments:
            spec = graph.specs[argument]
            self.keys[argument] = argument
            self.names[argument] = self._add(
                Node("input", (), {}, spec.shape, spec.dtype.removeprefix("torch."), -1, argument)
            )
        module = parse_source(graph.model_source)
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
                returns = tuple(self.keys[item.id] for item in items if isinstance(item, ast.Name))
                return _in_order_of_use(Program(self.nodes, self.statements, self.arguments, returns, dict(self.names)))
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
        if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
            self._augmented(statement, statement.target.id)
            return
        if not (isinstance(statement, ast.Assign) and len(statement.targets) == 1):
            raise OutsideFamiliesError(f"the statement `{ast.unparse(statement)[:60]}` is not a plain assignment")
        target = statement.targets[0]
        if not isinstance(target, ast.Name):
            raise OutsideFamiliesError(f"the statement `{ast.unparse(statement)[:60]}` sets more than one name")
        value = self._value(statement.value)
        if not isinstance(value, Ref):
            value = Ref(self._add(Node("const", (value,), {}, None, None)))
        self._set(statement, self._reads(statement.value), target.id, value.node)

    def _augmented(self, statement: ast.AugAssign, name: str) -> None:
        """`tmp_0 += x` of a value that the graph made: arithmetic that keeps the dtype of tmp_0."""
        text = ast.unparse(statement)[:60]
        if name not in self.keys:
            raise OutsideFamiliesError(f"the name {name!r} is not set")
        index = self.names[self.keys[name]]
        node, op = self.nodes[index], _OPERATORS.get(type(statement.op).__name__, "?")
        aliases = [key for key, other in self.names.items() if other == index and key != self.keys[name]]
        seen = [item for item in self.nodes if Ref(index) in item.args and item.op in VIEWS | SAME]
        if node.op in VIEWS | SAME | {"input", "const"} or aliases or seen:
            raise OutsideFamiliesError(f"the statement `{text}` changes what something else looks at")
        reads = (self.keys[name], *self._reads(statement.value))
        value = self._op(op, Ref(index), self._value(statement.value))
        changed = self.nodes[value.node]
        if changed.shape != node.shape:
            raise OutsideFamiliesError(f"the statement `{text}` would change a shape")
        changed.dtype = node.dtype
        self._set(statement, reads, name, value.node)

    def _reads(self, value: ast.expr) -> tuple[str, ...]:
        names = [node.id for node in ast.walk(value) if isinstance(node, ast.Name)]
        return tuple(self.keys[name] for name in names if name in self.keys)

    def _set(self, statement: ast.stmt, reads: Sequence[str], name: str, node: int) -> None:
        """A statement that gives a variable its value, which may be its second one."""
        self.nodes[node].name = self.nodes[node].name or name
        count = sum(key.split("@")[0] == name for key in self.names)
        key = f"{name}@{count}" if count else name
        self.keys[name], self.names[key] = key, node
        self.statements.append(Statement(ast.unparse(statement), tuple(dict.fromkeys(reads)), key, node))

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
            if node.id in self.keys:
                return Ref(self.names[self.keys[node.id]])
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


def _in_order_of_use(program: Program) -> Program:
    """The program with its inputs in the order in which they are first read, so that names do not tell graphs apart."""
    count = len(program.arguments)
    used = [ref for node in program.nodes for ref in _refs((node.args, tuple(node.kwargs.values()))) if ref < count]
    order = list(dict.fromkeys([*used, *range(count)]))
    place = {old: new for new, old in enumerate(order)}
    for node in program.nodes:
        node.args = _moved(node.args, place)
        node.kwargs = {name: _moved(value, place) for name, value in node.kwargs.items()}
    for statement in program.statements:
        statement.node = place.get(statement.node, statement.node)
    program.nodes[:count] = [program.nodes[old] for old in order]
    program.variables = {key: place.get(node, node) for key, node in program.variables.items()}
    return program


def _refs(value: Any) -> list[int]:
    if isinstance(value, Ref):
        return [value.node]
    return [ref for item in value for ref in _refs(item)] if isinstance(value, tuple) else []


def _moved(value: Any, place: dict[int, int]) -> Any:
    if isinstance(value, Ref):
        return Ref(place.get(value.node, value.node))
    return tuple(_moved(item, place) for item in value) if isinstance(value, tuple) else value


_OPERATORS = {
    "Add": "add",
    "Sub": "sub",
    "Mult": "mul",
    "Div": "div",
    "Pow": "pow",
    "FloorDiv": "floor_divide",
    "Mod": "remainder",
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
    "concat": "cat",
    "concatenate": "cat",
    "scaled_dot_product_attention": "attention",
}
