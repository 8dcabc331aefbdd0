"""Graph and TensorSpec: one computation graph as source text plus the specs of its tensors. No torch.

The files are kept as the text that was read, so writing a graph back is byte-exact; everything else here is derived
from them. Metas are read with ast.literal_eval and never executed (PassNet's format).
"""

from __future__ import annotations

import ast
import hashlib
import json
import math
from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, field_validator

from data.plain_forms import plain_forward_arguments, read_plain_metas
from data.syntax import parse_source

if TYPE_CHECKING:
    from data.constraints_file import InputConstraints

MODEL_FILE = "model.py"
WEIGHT_META_FILE = "weight_meta.py"
INPUT_META_FILE = "input_meta.py"
GRAPH_NET_FILE = "graph_net.json"
GRAPH_HASH_FILE = "graph_hash.txt"
INPUT_CONSTRAINTS_FILE = "input_tensor_constraints.py"
GRAPH_FILES = (
    MODEL_FILE,
    WEIGHT_META_FILE,
    INPUT_META_FILE,
    GRAPH_NET_FILE,
    GRAPH_HASH_FILE,
    INPUT_CONSTRAINTS_FILE,
)

KNOWN_DTYPES = (
    "float32", "float16", "bfloat16", "float64", "int64", "int32", "int16", "int8", "uint8", "bool",
    "complex64", "complex128", "complex32",
)  # fmt: skip
META_CLASS_PREFIX = "Program_weight_tensor_meta_"
_SPEC_FIELDS = ("original_name", "shape", "dtype", "device", "mean", "std", "data", "min_val", "max_val")


class MalformedGraphError(ValueError):
    """A graph's files break the format. The message names the file, the fault and the cure."""


class TensorSpec(BaseModel):
    """What a meta class says of one argument of the graph."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    class_name: str
    """Name of the meta class; PassNet draws inputs in its alphabetical order."""
    name: str
    """The forward argument that the tensor binds to."""
    original_name: str | None = None
    """The name in the source model, if known."""
    shape: tuple[int, ...]
    dtype: str
    """As written, with the prefix: "torch.float32"."""
    device: str = "cpu"
    """Where the tensor was captured; the machine's device is used when it runs."""
    mean: float | None = None
    std: float | None = None
    data: Any = None
    """The values themselves (a flat or nested list), if the meta holds them; used as they are."""
    min_val: float | int | None = None
    max_val: float | int | None = None
    role: Literal["weight", "input"] = "weight"
    """Which of the two meta files holds it."""

    @field_validator("dtype")
    @classmethod
    def _dtype_is_known(cls, dtype: str) -> str:
        if dtype.removeprefix("torch.") not in KNOWN_DTYPES:
            raise ValueError(f"{dtype} is no dtype that graphs may have; one of torch.{', torch.'.join(KNOWN_DTYPES)}")
        return dtype

    @property
    def num_elements(self) -> int:
        return math.prod(self.shape)


class Graph:
    """One computation graph. Immutable; equal when its files are equal."""

    def __init__(self, name: str, files: Mapping[str, str]) -> None:
        """name: the path in the task's graph list; files: file name -> text, as on disk."""
        self.name = name
        self.files: Mapping[str, str] = MappingProxyType(dict(files))
        for required in (GRAPH_NET_FILE, MODEL_FILE):
            if required not in self.files:
                needed = f"{GRAPH_NET_FILE} and {MODEL_FILE}"
                raise MalformedGraphError(f"{name}/{required}: missing; a graph needs {needed}")
        # read everything now: a malformed file is refused when the graph is made, not in the middle of a run
        _ = self.net, self.arguments, self.specs

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Graph) and self.name == other.name and self.files == other.files

    def __hash__(self) -> int:
        return hash((self.name, self.content_hash))

    def __repr__(self) -> str:
        return f"Graph({self.name!r}, {self.content_hash[:12]})"

    @property
    def model_source(self) -> str:
        return self.files[MODEL_FILE]

    @cached_property
    def net(self) -> Mapping[str, Any]:
        """graph_net.json with every key that it holds."""
        path = f"{self.name}/{GRAPH_NET_FILE}"
        try:
            net = json.loads(self.files[GRAPH_NET_FILE])
        except json.JSONDecodeError as error:
            raise MalformedGraphError(f"{path}: not JSON ({error}); write it again or remove the graph") from None
        if not isinstance(net, dict):
            raise MalformedGraphError(f"{path}: expected a JSON object, found {type(net).__name__}")
        framework = net.get("framework", "torch")
        if framework != "torch":
            raise MalformedGraphError(
                f"{path}: framework is {framework!r}; Passwright runs PyTorch graphs only, leave this graph out"
            )
        return MappingProxyType(net)

    @property
    def family(self) -> str | None:
        """Key into the batch-invariance contracts, if the graph states one."""
        family = self.net.get("family")
        return family if isinstance(family, str) else None

    @cached_property
    def arguments(self) -> tuple[str, ...]:
        """Names of GraphModule.forward's arguments, in order."""
        return _forward_arguments(self.model_source, f"{self.name}/{MODEL_FILE}")

    @cached_property
    def specs(self) -> Mapping[str, TensorSpec]:
        """Argument name -> spec, in the alphabetical order of the meta class names."""
        found: list[TensorSpec] = []
        roles: tuple[tuple[str, Literal["weight", "input"]], ...]
        roles = ((WEIGHT_META_FILE, "weight"), (INPUT_META_FILE, "input"))
        for file_name, role in roles:
            if file_name in self.files:
                found += parse_meta(self.files[file_name], f"{self.name}/{file_name}", role=role)
        by_name = {spec.name: spec for spec in sorted(found, key=lambda spec: spec.class_name)}
        missing = [argument for argument in self.arguments if argument not in by_name]
        if missing and WEIGHT_META_FILE not in self.files:
            raise MalformedGraphError(
                f"{self.name}/{WEIGHT_META_FILE}: missing; it names shape and dtype of each argument of forward"
            )
        if missing:
            raise MalformedGraphError(
                f"{self.name}/{WEIGHT_META_FILE}: no meta class for the argument {missing[0]!r} of forward "
                f"({len(missing)} missing); add one with its shape and dtype"
            )
        return MappingProxyType(by_name)

    @cached_property
    def constraints(self) -> InputConstraints | None:
        """Which sizes of the inputs may vary together, if the graph's file says so. Raises MalformedGraphError."""
        from data.constraints_file import graph_constraints  # it reads graphs

        return graph_constraints(self)

    @cached_property
    def graph_hash(self) -> str:
        """sha256 of the text of model.py: upstream's hash, which ignores shapes."""
        return hashlib.sha256(self.model_source.encode()).hexdigest()

    @cached_property
    def content_hash(self) -> str:
        """sha256 over model.py and both metas: two graphs with one hash ask the same thing."""
        digest = hashlib.sha256()
        for file_name in (MODEL_FILE, WEIGHT_META_FILE, INPUT_META_FILE):
            text = self.files.get(file_name, "").encode()
            digest.update(f"{file_name} {len(text)}\n".encode())
            digest.update(text)
        return digest.hexdigest()


def parse_meta(text: str, path: str, *, role: Literal["weight", "input"] = "weight") -> list[TensorSpec]:
    """Read a meta file's classes. Raises MalformedGraphError naming path, line and fault."""
    plain = read_plain_metas(text)
    if plain is not None:
        try:
            return [_spec(name, fields, role) for name, fields in plain]
        except ValueError:
            pass  # below, the message gets its line
    specs = []
    for node in parse_python(text, path).body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        if not isinstance(node, ast.ClassDef):
            raise MalformedGraphError(f"{path}:{node.lineno}: expected only classes {META_CLASS_PREFIX}<name>")
        fields = _class_fields(node, path)
        try:
            specs.append(_spec(node.name, fields, role))
        except ValueError as error:
            reason = str(error).splitlines()
            raise MalformedGraphError(
                f"{path}:{node.lineno}: class {node.name}: {' '.join(reason[1:3])}; write it as PassNet's metas do"
            ) from None
    return specs


def _spec(class_name: str, fields: Mapping[str, Any], role: Literal["weight", "input"]) -> TensorSpec:
    values = {name: fields[name] for name in _SPEC_FIELDS if name in fields}
    name = fields.get("name") or class_name.removeprefix(META_CLASS_PREFIX)
    return TensorSpec(class_name=class_name, name=name, role=role, **values)


def parse_python(text: str, path: str, *, cure: str = "correct it or leave the graph out") -> ast.Module:
    """The syntax tree of a graph's file. Raises MalformedGraphError naming path, line, fault and cure."""
    try:
        return parse_source(text)
    except (SyntaxError, ValueError) as error:
        where = f":{error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        raise MalformedGraphError(f"{path}{where}: not Python ({error}); {cure}") from None


def _class_fields(node: ast.ClassDef, path: str) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for statement in node.body:
        if isinstance(statement, ast.Pass):
            continue
        if not (isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)):
            raise MalformedGraphError(f"{path}:{statement.lineno}: expected `name = literal`")
        fields[statement.targets[0].id] = _literal(statement.value, f"{path}:{statement.lineno}")
    return fields


def _literal(node: ast.expr, where: str) -> Any:
    """A literal, or float("nan") / float("inf"), which upstream's writers emit and literal_eval refuses."""
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "float"
        and len(node.args) == 1
        and isinstance(node.args[0], ast.Constant)
        and isinstance(node.args[0].value, str)
    ):
        try:
            return float(node.args[0].value)
        except ValueError:
            pass
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Call):
        return -_literal(node.operand, where)
    if isinstance(node, ast.Name) and node.id in ("nan", "inf"):
        return float(node.id)
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, MemoryError, RecursionError):
        shown = ast.unparse(node)[:60]
        raise MalformedGraphError(f"{where}: {shown!r} is not a literal; metas hold data only") from None


def _forward_arguments(source: str, path: str) -> tuple[str, ...]:
    plain = plain_forward_arguments(source)
    if plain is not None:
        return plain
    for node in parse_python(source, path).body:
        if isinstance(node, ast.ClassDef) and node.name == "GraphModule":
            for item in node.body:
                if isinstance(item, ast.FunctionDef) and item.name == "forward":
                    return tuple(argument.arg for argument in item.args.args[1:])
            raise MalformedGraphError(f"{path}:{node.lineno}: class GraphModule has no forward")
    raise MalformedGraphError(f"{path}: no class GraphModule; a graph's model.py defines exactly that class")
