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
        self.is_guess = parent is not None and parent.is_guess
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


def element(value: Val) -> Val:
    """One Val for any item of a SEQ."""
    if value.data is None:
        return value.dims[0] if value.dims else unknown(value.dep)
    return merge_all(value.data, value.dep)


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


def merge(a: Val, b: Val, dep: Dep | None = None) -> Val:
    """What holds after two ways that `dep` chose between (None: not the batch)."""
    if a is b:
        return a
    if a.const is not NC and b.const is not NC:
        if type(a.const) is type(b.const) and a.const == b.const:
            return a
    elif a.const is None or b.const is None:  # None on one way: a later test rules it out, or it is an absent part
        return with_dep(b if a.const is None else a, dep if b.kind == NUM and a.kind == NUM else None)
    joined = stronger(a.dep, b.dep)
    if a.kind != b.kind:
        if ANY in (a.kind, b.kind):
            known = b if a.kind == ANY else a
            if known.kind in (TENSOR, PTR, BLOCK, OBJ):
                return known
        kind = ANY if {a.kind, b.kind} != {NUM, BLOCK} else BLOCK
        value = Val(kind, stronger(joined, dep), elem=a.elem if a.elem == b.elem else None)
        value.dims = a.dims or b.dims if kind == BLOCK else None
        value.elem = join_elem(a, b)
        return value
    if a.kind == NUM:
        value = num(stronger(joined, dep), join_elem(a, b))
    elif a.kind == SEQ:
        return _merge_seq(a, b, joined, dep)
    elif a.kind == MAP:
        keys = {**a.data, **b.data}
        merged = {key: merge(a.data.get(key, _ABSENT), b.data.get(key, _ABSENT), dep) for key in keys}
        return Val(MAP, joined, data=merged)
    elif a.kind == FUNC:
        functions = a.data + [function for function in b.data if function not in a.data]
        value = Val(FUNC, stronger(joined, dep) if len(functions) > len(a.data) else joined, data=functions)
    elif a.kind == OBJ:
        return _merge_objects(a, b, dep)
    elif a.kind in (TENSOR, BLOCK, PTR):
        value = a.copy()
        value.dep, value.elem = joined, join_elem(a, b)  # not dep: a padded or a plain x hold the same rows
        value.dims = None
        if a.dims is not None and b.dims is not None and len(a.dims) == len(b.dims):
            value.dims = tuple(merge(x, y, dep) for x, y in zip(a.dims, b.dims, strict=True))
        value.batch = a.batch if a.batch is not None else b.batch
        if a.kind == PTR and a.data is not b.data:
            value.data = a.data or b.data
    else:
        value = a.copy()
        value.dep = stronger(joined, dep) if a.kind in (ANY, RANGE) else joined
    value.index = a.index or b.index
    value.pos = a.pos or b.pos
    return value


def _merge_seq(a: Val, b: Val, joined: Dep | None, dep: Dep | None) -> Val:
    if a.data is not None and b.data is not None and len(a.data) == len(b.data):
        return seq([merge(x, y, dep) for x, y in zip(a.data, b.data, strict=True)], joined)
    filled = [value for value in (a, b) if value.data or value.dims]
    item = merge_all([element(value) for value in filled], dep) if filled else None
    return seq(None, stronger(joined, dep), item)


def _merge_objects(a: Val, b: Val, dep: Dep | None) -> Val:
    """One object for two of the same class: what their attributes have in common stays known."""
    first, second = a.data, b.data
    if first is second or first.cls is not second.cls:
        return a
    names = {**first.attributes, **second.attributes}
    merged = {
        name: merge(first.attributes.get(name, _ABSENT), second.attributes.get(name, _ABSENT), dep) for name in names
    }
    value = a.copy()
    value.data = type(first)(first.cls, merged)
    return value


def merge_all(values: list[Val], dep: Dep | None = None) -> Val:
    if not values:
        return unknown(dep)
    result = values[0]
    for value in values[1:]:
        result = merge(result, value, dep)
    return result


def join_elem(a: Val, b: Val) -> str | None:
    if a.elem == b.elem:
        return a.elem
    if "f" in (a.elem, b.elem):
        return "f"
    return a.elem or b.elem


_ABSENT: Final = const(None)
