"""State of one analysis: modules, functions, frames, kernels under analysis, and the tables that evaluate a node."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from eval_harness.batch_invariance.contract import Contract, Parameter
from eval_harness.batch_invariance.findings import Finding, Unresolved
from eval_harness.batch_invariance.static.values import Dep, Val, stronger, unknown

MAX_STATEMENTS = 30_000
"""Interpreted in one analysis; a file that needs more is left to the dynamic validator."""
MAX_DEPTH = 24
"""Calls inside calls."""

Event = tuple[Any, ...]
"""What fixes bits: ("sum", name, rank, sizes), ("loop", step), ("call", name), ("op", "exp"), ("cast", "float16")."""


@dataclass(eq=False)
class Module:
    """One source file, or CUDA text inside one."""

    name: str
    lines: Sequence[str]
    tree: ast.Module
    is_cuda: bool = False
    first_line: int = 0
    """Of CUDA text inside a Python file: the line before its first."""
    file: str = ""
    """What findings name: the file that holds it."""
    variables: dict[str, Val] = field(default_factory=dict)
    is_ready: bool = False


class Func:
    """A function, method, lambda or kernel, with what it closes over."""

    __slots__ = (
        "bound",
        "closure",
        "decorators",
        "heuristics",
        "is_jit",
        "keywords",
        "module",
        "name",
        "node",
        "owner",
        "positional",
        "tuning",
    )

    def __init__(self, name: str, node: Any, module: Module, closure: Frame | None) -> None:
        self.name = name
        self.node = node
        self.module = module
        self.closure = closure
        self.is_jit = False
        """Code of the GPU: a Triton kernel or helper, a __global__ or __device__ function."""
        self.tuning: list[Tuning] = []
        self.heuristics: dict[str, Val] = {}
        self.decorators: list[str] = []
        self.bound: Val | None = None
        """The object a method is bound to."""
        self.owner: Any = None
        self.positional: list[Val] = []
        self.keywords: dict[str, Val] = {}
        """Arguments of functools.partial."""

    def clone(self) -> Func:
        other = Func(self.name, self.node, self.module, self.closure)
        for slot in ("is_jit", "tuning", "heuristics", "decorators", "bound", "owner", "positional", "keywords"):
            setattr(other, slot, getattr(self, slot))
        return other


@dataclass
class Tuning:
    """A @triton.autotune: which arguments choose, and the meta-parameters that differ between its configurations."""

    keys: tuple[str, ...]
    varying: dict[str, Val] | None
    """Meta-parameter -> its value, without a constant where configurations differ; None: configurations not known."""
    line: int
    prune: Val | None = None
    """prune_configs_by: functions of the arguments that leave some configurations out."""


@dataclass(eq=False)
class Instance:
    """An object of a class of the sources; `cls` None: of a class not known, with known attributes."""

    cls: Any
    attributes: dict[str, Val]


@dataclass(eq=False)
class Class:
    name: str
    node: ast.ClassDef
    module: Module
    methods: dict[str, Func]
    attributes: dict[str, Val]
    bases: list[Class]
    fields: list[str]
    """Annotated names in order: the parameters of a dataclass or NamedTuple."""

    def method(self, name: str) -> Func | None:
        """The method that an object of this class has, its bases' too."""
        return next((cls.methods[name] for cls in self._lineage() if name in cls.methods), None)

    def attribute(self, name: str) -> Val | None:
        """A class variable, of the class or the nearest base."""
        return next((cls.attributes[name] for cls in self._lineage() if name in cls.attributes), None)

    def _lineage(self) -> Iterator[Class]:
        """The class, then each base before those of the next."""
        yield self
        for base in self.bases:
            yield from base._lineage()


class KernelContext:
    """A kernel under analysis, with what its launch fixed."""

    __slots__ = ("block", "first_load", "func", "grid", "name", "tile_names", "warps")

    def __init__(self, func: Func, grid: list[Val] | None, block: list[Val] | None, warps: Val | None) -> None:
        self.func = func
        self.name = func.name
        self.grid = grid
        self.block = block
        self.warps = warps
        self.first_load = 0
        """Where its own loads begin in Run.loads."""
        self.tile_names: set[str] = set()
        """Parameters that size a tile (tl.arange)."""


class LoopExits:
    """Where rounds of a loop are left: the variables there, and the condition of the batch it happens under."""

    __slots__ = ("entry", "places")

    def __init__(self, entry: Dep | None) -> None:
        self.entry = entry
        self.places: list[tuple[dict[str, Val], Dep | None]] = []


class Frame:
    """Names of one running function."""

    __slots__ = (
        "control",
        "ended",
        "entry",
        "exits",
        "func",
        "global_names",
        "kernel",
        "module",
        "outer",
        "returns",
        "variables",
        "yields",
    )

    def __init__(self, module: Module, outer: Frame | None = None, func: Func | None = None) -> None:
        self.module = module
        self.outer = outer
        self.func = func
        self.kernel: KernelContext | None = None
        self.variables: dict[str, Val] = {}
        self.returns: list[tuple[Val, Dep | None]] = []
        self.control: Dep | None = None
        """The strongest condition of the batch that this line stands under."""
        self.entry: Dep | None = None
        """The control that the function was called under."""
        self.exits: list[LoopExits] = []
        """For every loop around this line."""
        self.global_names: frozenset[str] = frozenset()
        self.yields: list[Val] = []
        self.ended = ""
        """Why the rest of the block does not run ("returned", "raised", "left"), or nothing."""


Evaluate = Callable[["Run", Any, Frame], Val]
Execute = Callable[["Run", Any, Frame], None]

Handler = Callable[["Run", Frame, str, list[Val], dict[str, Val], ast.Call], Val]
"""A library function by name: arguments, arguments by keyword, the call."""
PlainHandler = Callable[["Run", Frame, list[Val], dict[str, Val], ast.Call], Val]

EXPRESSIONS: dict[type[ast.AST], Evaluate] = {}
STATEMENTS: dict[type[ast.AST], Execute] = {}
IF_STATEMENT: list[Callable[[Run, ast.If, Frame, Sequence[ast.stmt]], None]] = []
"""branches.py puts its one function here."""


_TABLES: dict[int, tuple[Contract, frozenset[str], dict[str, Parameter]]] = {}
_MAX_TABLES = 64


def _tables(contract: Contract) -> tuple[frozenset[str], dict[str, Parameter]]:
    """The contract's symbols, and its parameters by name and alias; made once a contract, not once a file."""
    known = _TABLES.get(id(contract))
    if known is None or known[0] is not contract:
        if len(_TABLES) >= _MAX_TABLES:
            _TABLES.clear()
        parameters = {name: one for one in reversed(contract.parameters) for name in one.names}
        known = _TABLES[id(contract)] = (contract, contract.symbols, parameters)
    return known[1], known[2]


class Run:
    """One analysis: evaluates nodes, and collects findings, what stays open, and the reductions that ran."""

    def __init__(self, contract: Contract) -> None:
        self.contract = contract
        self.symbols, self.parameters = _tables(contract)
        self.modules: dict[str, Module] = {}
        self.files: dict[str, Sequence[str]] = {}
        """File name -> its lines."""
        self.findings: dict[tuple[Any, ...], Finding] = {}
        self.unresolved: dict[tuple[str, int, str], Unresolved] = {}
        self.events: dict[Event, None] = {}
        """What adds up or computes, in order of first appearance."""
        self.kernel_results: dict[Any, tuple[Event, ...]] = {}
        self.visited: set[int] = set()
        """ids of the function nodes that ran."""
        self.depth = 0
        self.num_statements = 0
        self.loop_facts: dict[int, Any] = {}
        self.loads: list[Any] = []
        """Buffers (buffers.py) that the kernel under analysis loaded from, in order; None for other tensors."""
        self.tentative: list[tuple[set[str], Callable[[], None]]] = []
        """Findings that hold only if one of the kernels that wrote what is added up has a finding too."""
        self.passes: dict[str, int] = {}
        """Kernel that adds up -> which pass it is: 2 adds up what a first one stored."""
        self.variant_kernels: set[str] = set()
        self.stack: list[int] = []
        """Function nodes that are running: a recursive call is not followed."""

    def eval(self, node: ast.AST, frame: Frame) -> Val:
        handler = EXPRESSIONS.get(type(node))
        return handler(self, node, frame) if handler is not None else unknown()

    def exec_block(self, statements: Sequence[ast.stmt], frame: Frame) -> None:
        """Run statements up to one that leaves the block."""
        for position, statement in enumerate(statements):
            self.num_statements += 1
            if self.num_statements > MAX_STATEMENTS:
                raise BudgetError
            if type(statement) is ast.If:
                IF_STATEMENT[0](self, statement, frame, statements[position + 1 :])
                return  # it ran what follows too: after a return in one way, the rest is the other way
            handler = STATEMENTS.get(type(statement))
            if handler is not None:
                handler(self, statement, frame)
                if frame.ended:
                    return

    def text(self, file: str, line: int) -> str:
        """The source line, stripped."""
        lines = self.files.get(file, ())
        return lines[line - 1].strip() if 0 < line <= len(lines) else ""

    def leave_open(self, frame: Frame, line: int, reason: str) -> None:
        """Book what only running it can decide, once for a line."""
        module = frame.module
        key = (module.file, line + module.first_line, reason)
        if key not in self.unresolved:
            self.unresolved[key] = Unresolved(*key)


class BudgetError(Exception):
    """More to interpret than MAX_STATEMENTS."""


def under(frame: Frame, dep: Dep | None) -> Dep | None:
    """The control that holds inside a branch taken by `dep`."""
    return stronger(frame.control, dep)
