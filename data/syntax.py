"""Python text to syntax trees, from any number of threads.

CPython 3.11 keeps the depth of a tree that it builds in one place for all threads: where two parse at once, one of them
can fail with "SystemError: AST constructor recursion depth mismatch". A collection or a GRPO run parses in many.
"""

from __future__ import annotations

import ast
import threading

_PARSING = threading.RLock()
_NUM_TRIES = 5


def parse_source(source: str, filename: str = "<unknown>") -> ast.Module:
    """ast.parse. Raises SyntaxError, ValueError, RecursionError and MemoryError as it does."""
    return _parse(source, filename, "exec")


def parse_expression(source: str) -> ast.expr:
    """The tree of one expression. Raises as parse_source."""
    return _parse(source, "<unknown>", "eval").body


def _parse(source: str, filename: str, mode: str):  # type: ignore[no-untyped-def]
    with _PARSING:
        for tries_left in reversed(range(_NUM_TRIES)):
            try:
                return ast.parse(source, filename=filename, mode=mode)
            except SystemError:  # a library's thread parses too
                if not tries_left:
                    raise
    raise AssertionError("unreachable")
