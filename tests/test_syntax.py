"""Trees of Python text, built by many threads at once."""

from __future__ import annotations

import ast
import gc
import sys
import threading
import time
from pathlib import Path

import pytest

from data.syntax import parse_expression, parse_source

ROOT = Path(__file__).parent.parent
SOURCE = "\n".join(f"def f{i}(a, b):\n    return ((a + {i}) * (b - {i}))[{i}]\n" for i in range(60))


class Collected:
    """Garbage that runs Python when it is collected: there the interpreter changes threads in the midst of a tree."""

    def __init__(self) -> None:
        self.me = self

    def __del__(self) -> None:
        for _ in range(50):
            pass


@pytest.fixture
def busy_collector():
    interval, threshold = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(50)
    yield
    sys.setswitchinterval(interval)
    gc.set_threshold(*threshold)


def test_threads_that_parse_at_once_get_their_trees(busy_collector: None) -> None:
    """ast.parse itself fails here on CPython 3.11."""
    failed: list[BaseException] = []
    end = time.monotonic() + 1.5

    def work() -> None:
        while time.monotonic() < end and not failed:
            for _ in range(20):
                Collected()
            try:
                assert len(parse_source(SOURCE).body) == 60
            except BaseException as error:
                failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


def test_what_is_no_python_is_told_as_ast_does() -> None:
    assert isinstance(parse_expression("a + 1"), ast.BinOp)
    with pytest.raises(SyntaxError) as raised:
        parse_source("x =\n", "pass.py")
    assert (raised.value.filename, raised.value.lineno) == ("pass.py", 1)
    with pytest.raises(SyntaxError):
        parse_expression("x = 1")


def test_nobody_else_parses() -> None:
    for package in ("data", "eval_harness", "trajectories", "training"):
        for path in (ROOT / package).rglob("*.py"):
            assert "ast.parse(" not in path.read_text() or path.name == "syntax.py", path
