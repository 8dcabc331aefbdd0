"""A configuration of several kinds, whose `kind` may be left out where its other keys say it.

`executor.num_judges=4` is one override on the command line; it should not need `executor.kind=local` beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel


def with_kind(*kinds: type[BaseModel]) -> Callable[[Any], Any]:
    """For pydantic's BeforeValidator: a mapping without `kind` gets that of the first kind that knows all its keys.

    kinds: each with a field `kind` of one literal value; the one that stands for none first. Raises ValueError (for
    pydantic) where no kind knows all keys: it lists them.
    """

    def fill(value: Any) -> Any:
        if not isinstance(value, Mapping) or "kind" in value:
            return value
        for kind in kinds:
            if set(value) <= set(kind.model_fields):
                return {"kind": _name(kind), **value}
        known = "; ".join(f"{_name(kind)} ({', '.join(sorted(set(kind.model_fields) - {'kind'}))})" for kind in kinds)
        raise ValueError(f"no kind has all of {', '.join(map(str, value))}; add kind=NAME. Keys by kind: {known}")

    return fill


def _name(kind: type[BaseModel]) -> str:
    (name,) = kind.model_fields["kind"].annotation.__args__  # type: ignore[union-attr]
    return str(name)
