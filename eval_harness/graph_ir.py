"""IRGraph and IRNode: a computation graph as plain data that crosses a process boundary as JSON.

A graph read from JSON may come from an untrusted process: everything is validated, sizes are capped, nothing is
evaluated or unpickled, and a function is named by a qualified name that graph_targets.py resolves from an allow-list.
Values are encoded by graph_values.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from eval_harness.graph_targets import REPLACEMENT_PREFIX, is_attribute_name, is_method_name, is_target_name
from eval_harness.graph_values import IRFormatError, Ref, decode_value, encode_value, iter_refs

__all__ = ["IRFormatError", "IRGraph", "IRNode", "Op", "Ref"]

Op = Literal["placeholder", "call_function", "call_method", "getattr", "output"]
_OPS: frozenset[str] = frozenset(get_args(Op))
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}\Z", re.ASCII)

MAX_NODES = 50_000
"""GraphNet's largest full graphs have about 15,000 nodes."""
MAX_WHERE = 300
MAX_SHOWN = 200
"""Characters of a node in a message."""
_REPLACEMENT = re.compile(re.escape(REPLACEMENT_PREFIX) + r"[A-Za-z_][A-Za-z0-9_]{0,127}\Z", re.ASCII)


@dataclass(frozen=True)
class IRNode:
    """One node. `args` and `kwargs` hold literals and Refs to earlier nodes, nested in tuples, lists, dicts, slices."""

    name: str
    op: Op
    target: str
    """placeholder: its name; call_function: qualified name, or "replacement:<rule>"; call_method and getattr: the
    attribute's name, args[0] is the object; output: "output", args[0] is the returned value."""
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    where: str = ""
    """"file:line" of the source that made it, for messages."""

    def refs(self) -> Iterator[str]:
        """Names of the nodes that it reads, in order, with repetitions."""
        for value in (self.args, self.kwargs):
            yield from iter_refs(value)

    @property
    def short_target(self) -> str:
        return self.target.rsplit(".", 1)[-1]

    def __str__(self) -> str:
        """`name = target(...)`, for messages."""
        text = self._text()
        return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + "..."

    def _text(self) -> str:
        if self.op == "placeholder":
            return self.name
        if self.op == "getattr":
            return f"{self.name} = {_show(self.args[0])}.{self.target}"
        shown = [_show(value) for value in self.args] + [f"{key}={_show(v)}" for key, v in self.kwargs.items()]
        if self.op == "call_method":
            return f"{self.name} = {shown[0]}.{self.target}({', '.join(shown[1:])})"
        return f"{self.name} = {self.short_target}({', '.join(shown)})"


class IRGraph:
    """Nodes in execution order: placeholders first, one output last. Validated when made, immutable after."""

    def __init__(self, nodes: list[IRNode] | tuple[IRNode, ...]) -> None:
        """Raises IRFormatError naming the node and the fault."""
        self.nodes = tuple(nodes)
        self.by_name: dict[str, IRNode] = {}
        _check_nodes(self.nodes, self.by_name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IRGraph) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(tuple((node.name, node.op, node.target) for node in self.nodes))

    def __str__(self) -> str:
        return "\n".join(str(node) for node in self.nodes)

    @property
    def placeholders(self) -> tuple[IRNode, ...]:
        return tuple(node for node in self.nodes if node.op == "placeholder")

    @property
    def output(self) -> IRNode:
        return self.nodes[-1]

    @property
    def calls(self) -> tuple[IRNode, ...]:
        """Everything but placeholders and the output."""
        return tuple(node for node in self.nodes if node.op not in ("placeholder", "output"))

    def users(self) -> dict[str, tuple[str, ...]]:
        """Node name -> names of the nodes that read it, the output included, in execution order."""
        found: dict[str, dict[str, None]] = {node.name: {} for node in self.nodes}
        for node in self.nodes:
            for ref in node.refs():
                found[ref][node.name] = None
        return {name: tuple(users) for name, users in found.items()}

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data; `from_json` gives an equal graph."""
        return {"nodes": [_encode_node(node) for node in self.nodes]}

    @classmethod
    def from_json(cls, data: Any) -> IRGraph:
        """Read what `to_json` wrote. Raises IRFormatError: the data may come from an untrusted process."""
        if not isinstance(data, dict) or set(data) != {"nodes"} or not isinstance(data["nodes"], list):
            raise IRFormatError('expected {"nodes": [...]}')
        if len(data["nodes"]) > MAX_NODES:
            raise IRFormatError(f"{len(data['nodes'])} nodes; at most {MAX_NODES} are accepted")
        return cls([_decode_node(item, index) for index, item in enumerate(data["nodes"])])


def _check_nodes(nodes: tuple[IRNode, ...], by_name: dict[str, IRNode]) -> None:
    if len(nodes) > MAX_NODES:
        raise IRFormatError(f"{len(nodes)} nodes; at most {MAX_NODES} are accepted")
    if not nodes or nodes[-1].op != "output":
        raise IRFormatError("the last node must be the output")
    calls_begun = False
    for node in nodes:
        if node.op not in _OPS or not _NAME.match(node.name):
            raise IRFormatError(f"node {node.name[:80]!r}: bad name or op {str(node.op)[:80]!r}")
        if node.name in by_name:
            raise IRFormatError(f"node {node.name}: the name is used twice")
        if node.op == "placeholder" and (calls_begun or node.args or node.kwargs):
            raise IRFormatError(f"node {node.name}: placeholders come first and have no arguments")
        calls_begun = calls_begun or node.op != "placeholder"
        if node.op == "output" and (node is not nodes[-1] or len(node.args) != 1 or node.kwargs):
            raise IRFormatError(f"node {node.name}: one output with one argument ends a graph")
        _check_target(node)
        for ref in node.refs():
            if ref not in by_name:
                raise IRFormatError(f"node {node.name}: reads {ref[:80]!r}, which is no earlier node")
        by_name[node.name] = node


def _check_target(node: IRNode) -> None:
    allowed = {
        "placeholder": lambda target: bool(_NAME.match(target)),
        "output": lambda target: target == "output",
        "call_function": lambda target: bool(_REPLACEMENT.match(target)) or is_target_name(target),
        "call_method": is_method_name,
        "getattr": is_attribute_name,
    }[node.op](node.target)
    if not allowed:
        raise IRFormatError(f"node {node.name}: {node.target[:120]!r} is not an accepted target of {node.op}")
    if node.op in ("call_method", "getattr") and not node.args:
        raise IRFormatError(f"node {node.name}: {node.op} needs the object as its first argument")


def _show(value: Any) -> str:
    if isinstance(value, Ref):
        return value.name
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _encode_node(node: IRNode) -> dict[str, Any]:
    data: dict[str, Any] = {"name": node.name, "op": node.op, "target": node.target}
    if node.args:
        data["args"] = [encode_value(value) for value in node.args]
    if node.kwargs:
        data["kwargs"] = {key: encode_value(value) for key, value in node.kwargs.items()}
    if node.where:
        data["where"] = node.where
    return data


def _decode_node(data: Any, index: int) -> IRNode:
    if not isinstance(data, dict) or not set(data) <= {"name", "op", "target", "args", "kwargs", "where"}:
        raise IRFormatError(f"node {index}: expected an object with name, op, target, args, kwargs, where")
    texts = [data.get("name"), data.get("op"), data.get("target"), data.get("where", "")]
    if not all(isinstance(text, str) and len(text) <= MAX_WHERE for text in texts):
        raise IRFormatError(f"node {index}: name, op, target and where must be short strings")
    args, kwargs = data.get("args", []), data.get("kwargs", {})
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        raise IRFormatError(f"node {index}: args must be a list and kwargs an object")
    if not all(_NAME.match(key) for key in kwargs):
        raise IRFormatError(f"node {index}: a keyword must be an identifier")
    return IRNode(
        name=data["name"],
        op=data["op"],
        target=data["target"],
        args=tuple(decode_value(value) for value in args),
        kwargs={key: decode_value(value) for key, value in kwargs.items()},
        where=data.get("where", ""),
    )
