"""Whether one dotted library name may be used at one place of a pass: the allow-lists, applied.

A place is a kernel ("numba", "triton"), the body of `pattern`, or plain wrapper code; names are absolute, aliases have
been followed (source_scope.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from eval_harness import source_names as names


@dataclass(frozen=True)
class Place:
    """Where in a file a name stands."""

    kernel: str | None = None
    """"numba" or "triton" inside such a kernel, else None."""
    in_pattern: bool = False


def check_library_name(origin: str, place: Place) -> tuple[str, str] | None:
    """(rule, message) when the name may not be used there."""
    root, _, rest = origin.partition(".")
    hidden = [part for part in rest.split(".") if part.startswith("_") or _is_foreign_module(part)]
    if hidden and not (place.in_pattern and origin.startswith(names.TORCH_PATTERN_PRIVATE)):
        return "source.import", f"{origin}: {hidden[0]} is not a public part of {root}"
    if root == "torch":
        return _check_torch(rest, place)
    if root == "numpy":
        return _check_numpy(rest, place)
    if root == "numba":
        return _check_numba(rest)
    if root == "triton":
        return _check_triton(rest)
    module, _, name = origin.rpartition(".")
    allowed = names.OTHER_ALLOWED.get(module, frozenset())
    if allowed is not None and name not in allowed:
        return "source.import", f"{origin} is not allowed; write it out in plain Python"
    return None


def _is_foreign_module(part: str) -> bool:
    # numba.types and triton's types are namespaces of type names
    return part in names.MODULE_ATTRIBUTES_DENIED and part != "types"


def _check_torch(rest: str, place: Place) -> tuple[str, str] | None:
    first = rest.split(".")[0]
    if rest in names.TORCH_ALLOWED or first in names.TORCH_DTYPES:
        return None
    if not place.in_pattern:
        return "source.torch-call", f"torch.{rest}; only allocation, views and queries, compute in your own kernel"
    if first in names.TORCH_DENIED_IN_PATTERN:
        return "source.pattern", f"torch.{rest} inside pattern; it may only hold the graph's own calls"
    return None


def _check_numpy(rest: str, place: Place) -> tuple[str, str] | None:
    parts = rest.split(".")
    if place.kernel == "numba":
        if names.NUMPY_DENIED_IN_NJIT & set(parts):
            return "source.numpy-call", f"numpy.{rest} inside @njit calls a library; write the loops"
        return None
    if rest in names.NUMPY_ALLOWED or parts[0] in names.NUMPY_DTYPES:
        return None
    return "source.numpy-call", f"numpy.{rest} outside @njit; only views, dtypes, empty, casts and contiguous copies"


def _check_numba(rest: str) -> tuple[str, str] | None:
    scalar = rest.removeprefix("types.") in names.NUMBA_SCALARS
    if scalar or rest in names.NUMBA_ALLOWED or rest.startswith("cuda.libdevice."):
        return None
    return "source.numba-call", f"numba.{rest}; allowed are njit, vectorize, prange, scalar types and numba.cuda"


def _check_triton(rest: str) -> tuple[str, str] | None:
    parts = rest.split(".")
    if parts[0] != "language":
        if rest in names.TRITON_ALLOWED:
            return None
        return "source.triton-call", f"triton.{rest}; allowed are jit, autotune, heuristics, Config, cdiv"
    too_deep = len(parts) > 3 and parts[1] not in names.TRITON_LANGUAGE_SUBMODULES
    if parts[1] in names.TRITON_LANGUAGE_DENIED or too_deep:
        return "source.triton-call", f"triton.{rest}; use the functions of triton.language itself"
    return None
