"""What the data-flow rules know of a value: is it an array, does it hold some, which functions may it be.

An abstract value, joined over all ways to get it. "Array" stands for tensors and numpy arrays alike: values that derive
from the inputs or were allocated, and that only kernels may compute with. Sizes, dtypes and literals are clean.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

MAX_PARTS = 16
"""Of a tuple that is followed element by element; a longer one is a container of their join."""
MAX_NESTING = 3
ITERATOR = "iterator:"
"""Among the functions of a value: it can be walked through once, which counts."""


@dataclass(frozen=True)
class Value:
    """One abstract value."""

    is_array: bool = False
    is_mutable: bool = False
    """A container or object that could keep something."""
    is_shared: bool = False
    """Outlives a call: read from module level, a default argument, a closure made at import."""
    is_derived: bool = False
    """Computed from something shared: a counter, once it is stored back."""
    functions: frozenset[str] = frozenset()
    """Ids of what it may be when called: "builtin:sum", "library:math.exp", functions and classes of the folder."""
    parts: tuple[Value, ...] | None = None
    """Elements of a tuple or list of known length."""
    element: Value | None = None
    """Join of the elements of any other container."""

    @property
    def holds_array(self) -> bool:
        """Whether it is an array or a container of some."""
        return self.is_array or any(inner.holds_array for inner in self.inner())

    @property
    def is_constant(self) -> bool:
        """Whether all that it holds is immutable: a table, as long as nobody puts anything into it."""
        if self.is_array or ITERATOR in self.functions or (self.is_mutable and not self.inner()):
            return False
        return not any(inner.is_mutable or not inner.is_constant for inner in self.inner())

    def inner(self) -> tuple[Value, ...]:
        return (self.parts or ()) + ((self.element,) if self.element is not None else ())

    def elements(self) -> Value:
        """Join of what a loop over it or a subscript gives; an array gives arrays."""
        found = join(self.inner())
        if self.is_array:
            found = join([found, ARRAY])
        flags = replace(found, is_shared=found.is_shared or self.is_shared)
        return replace(flags, is_derived=flags.is_derived or self.is_derived)

    def shared(self) -> Value:
        """The same value, seen from a call that it outlives."""
        return replace(self, is_shared=True) if self.is_mutable or self.is_array else self

    def shallow(self, depth: int = 0) -> Value:
        """The value with its nesting cut, so that the analysis ends."""
        if self.parts is None and self.element is None:
            return self
        if depth >= MAX_NESTING:
            return replace(
                self,
                parts=None,
                element=None,
                is_array=self.holds_array,
                functions=all_functions(self),
            )
        parts = None if self.parts is None else tuple(part.shallow(depth + 1) for part in self.parts)
        element = None if self.element is None else self.element.shallow(depth + 1)
        return replace(self, parts=parts, element=element)


CLEAN = Value()
ARRAY = Value(is_array=True)


def all_functions(value: Value) -> frozenset[str]:
    found = value.functions
    for inner in value.inner():
        found |= all_functions(inner)
    return found


def of_parts(values: Iterable[Value]) -> Value:
    """A tuple or list with these elements."""
    parts = tuple(values)
    if len(parts) > MAX_PARTS:
        return many(join(parts))
    return Value(is_mutable=True, parts=parts)


def many(element: Value) -> Value:
    """A container of unknown length."""
    return Value(is_mutable=True, element=element)


def functions_of(*identifiers: str) -> Value:
    return Value(functions=frozenset(identifiers))


def join(values: Iterable[Value]) -> Value:
    """The least value that stands for all of them."""
    listed = list(dict.fromkeys(values))
    if not listed:
        return CLEAN
    if len(listed) == 1:
        return listed[0]
    parts: tuple[Value, ...] | None = None
    containers = [value for value in listed if value.inner() or value.parts is not None]
    lengths = {len(value.parts) if value.parts is not None else -1 for value in containers}
    elements = [value.element for value in containers if value.element is not None]
    if len(lengths) == 1 and -1 not in lengths:
        parts = tuple(join(column) for column in zip(*(value.parts or () for value in containers), strict=True))
    else:
        elements += [part for value in containers for part in value.parts or ()]
    return Value(
        is_array=any(value.is_array for value in listed),
        is_mutable=any(value.is_mutable for value in listed),
        is_shared=any(value.is_shared for value in listed),
        is_derived=any(value.is_derived for value in listed),
        functions=frozenset().union(*(value.functions for value in listed)),
        parts=parts,
        element=join(elements) if elements else None,
    ).shallow()
