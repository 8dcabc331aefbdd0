"""What the analyser knows of a value: how it depends on the batch (Dep), and its shape, constant and type (Val).

No value of the program is ever computed: constants are folded only so that dead branches and equal choices are seen.
"""

from __future__ import annotations

from typing import Any, Final

ROWS: Final = 1
"""Counts rows, or work proportional to them: B, B * heads, cdiv(M, BLOCK_M)."""
EXTENT: Final = 2
"""A largest length over the rows of a batch: as an upper bound it only adds empty work."""
STRUCT: Final = 3
"""Anything else that follows the batch: a choice made by it, a quotient by it."""


PLACE: Final = "<place>"
"""Val.data of a program id, whatever its axis: which axis of the grid is which moves programs, and nothing they add."""


class _NoConst:
    def __repr__(self) -> str:
        return "NC"


NC: Final = _NoConst()
"""No known constant (None is a constant)."""


class Dep:
    """One step of a dependency on the batch; `parent` leads back to the symbol."""

    __slots__ = ("file", "is_guess", "line", "mode", "name", "param", "parent", "part", "root")

    def __init__(
        self,
        mode: int,
        file: str,
        line: int,
        parent: Dep | None = None,
        *,
        name: str | None = None,
        param: tuple[str, str] | None = None,
        part: bool = False,
        root: str | None = None,
    ) -> None:
        self.mode = mode
        self.file = file
        self.line = line
        self.parent = parent
        self.name = name
        """The variable or parameter that holds it here."""
        self.param = param
        """(kernel, parameter) it entered a kernel through last."""
        self.part = part
        """A quotient by something of the batch, or a product with one: the length or the number of parts."""
        self.is_guess: bool = parent is not None and parent.is_guess
        """It went through a function that is not among the sources, which may or may not pass it on."""
        self.root = root
        """Which row count it is an exact multiple of ("B", "T"), so that B*S // B is known to be free of it."""

    def step(self, file: str, line: int, name: str | None = None) -> Dep:
        """The same dependency one line further on."""
        if self.line == line and self.file == file and (name is None or name == self.name):
            return self
        return Dep(
            self.mode, file, line, self, name=name or self.name, param=self.param, part=self.part, root=self.root
        )

    def into(self, mode: int, *, part: bool | None = None, root: str | None = None) -> Dep:
        """The same step with another mode."""
        part = self.part if part is None else part
        if mode == self.mode and part == self.part and root == self.root:
            return self
        dep = Dep(mode, self.file, self.line, self.parent, name=self.name, param=self.param, part=part, root=root)
        dep.is_guess = self.is_guess
        return dep

    def chain(self) -> list[Dep]:
        """From the symbol to this step."""
        steps: list[Dep] = []
        dep: Dep | None = self
        while dep is not None and len(steps) < 64:
            steps.append(dep)
            dep = dep.parent
        return steps[::-1]


NUM = "num"
TENSOR = "tensor"
SHAPE = "shape"
SEQ = "seq"
MAP = "map"
FUNC = "func"
OBJ = "obj"
CLASS = "class"
LIB = "lib"
PTR = "ptr"
BLOCK = "block"
RANGE = "range"
ANY = "any"


class Val:
    """An abstract value. Treated as immutable, except for a tensor's `batch`, which its first unpacking may settle."""

    __slots__ = ("batch", "const", "data", "dep", "dims", "elem", "index", "kind", "name", "pos")

    def __init__(
        self,
        kind: str = ANY,
        dep: Dep | None = None,
        const: Any = NC,
        data: Any = None,
        dims: tuple[Val, ...] | None = None,
        elem: str | None = None,
    ) -> None:
        self.kind = kind
        self.dep = dep
        """How the value (of a tensor: its contents) follows the batch."""
        self.const = const
        self.data = data
        """SEQ: list of items, or None; MAP: dict; FUNC: list of functions; LIB: dotted name; SHAPE: (tensor, start,
        stop); RANGE: (lo, hi, step); PTR: the tensor pointed into; OBJ: Instance."""
        self.dims = dims
        """Sizes, where the rank is known: of a tensor, or of a block in a kernel (() is a scalar)."""
        self.elem = elem
        """"f", "i", "b" (floating, integer, boolean) or None."""
        self.batch: int | None = None
        """TENSOR: the dimension that rows lie along."""
        self.index = False
        """In a kernel: made from program ids, lanes or loop counters, so comparing it with a size is a bounds mask."""
        self.pos: Dep | None = None
        """In a kernel: follows the row's position in the batch."""
        self.name: str | None = None

    def copy(self) -> Val:
        other = Val(self.kind, self.dep, self.const, self.data, self.dims, self.elem)
        other.batch, other.index, other.pos, other.name = self.batch, self.index, self.pos, self.name
        return other


def num(dep: Dep | None = None, elem: str | None = None) -> Val:
    return Val(NUM, dep, elem=elem)


def const(value: Any) -> Val:
    elem = "b" if isinstance(value, bool) else "i" if isinstance(value, int) else None
    return Val(NUM, None, value, elem="f" if isinstance(value, float) else elem)


def unknown(dep: Dep | None = None) -> Val:
    return Val(ANY, dep)


def seq(items: list[Val] | None, dep: Dep | None = None, elem: Val | None = None) -> Val:
    """A tuple or list; with items None its length is not known and `elem` stands for every item."""
    value = Val(SEQ, dep, data=items)
    if items is None:
        value.dims = (elem,) if elem is not None else None
    return value


def stronger(a: Dep | None, b: Dep | None) -> Dep | None:
    """The dependency that decides when two values come together."""
    if a is None or b is None:
        return a or b
    return b if b.mode > a.mode or (a.is_guess and not b.is_guess) else a


def struct(dep: Dep | None) -> Dep | None:
    return None if dep is None else dep.into(STRUCT)


def guess(dep: Dep | None) -> Dep | None:
    """What a function that is not among the sources may make of it."""
    if dep is None:
        return None
    guessed = Dep(STRUCT, dep.file, dep.line, dep.parent, name=dep.name, param=dep.param, part=dep.part)
    guessed.is_guess = True
    return guessed


def with_dep(value: Val, dep: Dep | None) -> Val:
    """The value, following `dep` too (contents of containers included)."""
    if dep is None:
        return value
    value = value.copy()
    value.dep = stronger(value.dep, dep)
    if value.kind == NUM:
        value.const = NC
    return value


def join_elem(a: Val, b: Val) -> str | None:
    if a.elem == b.elem:
        return a.elem
    if "f" in (a.elem, b.elem):
        return "f"
    return a.elem or b.elem
