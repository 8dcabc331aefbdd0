"""`passwright bench NAME`: one measurement of the harness itself; exit status 4 when a target is missed.

Each measurement is a module of scripts/benches/. Only the one that is named is imported, and only when it is: what
`passwright bench --help` shows of the others is read from their text.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import re
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from scripts.arguments import add_device, add_json
from scripts.cli import LOG_LEVELS, OneLineParser

HELP = "Measure the harness (noise, clocks, speed, integrity, faults), the built-in expert, the collector and training."

BENCHES_DIR = Path(__file__).resolve().parent.parent / "benches"
ORDER = ("noise", "clocks", "harness", "integrity", "soak", "bi", "expert", "collect", "dataset", "sft", "rollouts")
"""In which they are listed; any other follows by name."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    names = parser.add_subparsers(dest="bench", metavar="NAME", required=True, parser_class=_BenchParser)
    for name, text in list_benches().items():
        names.add_parser(name, help=text, description=text)


def run(args: argparse.Namespace) -> int:
    return load_bench(args.bench).run(args)


def list_benches() -> dict[str, str]:
    """Name -> HELP of every measurement there is, read from the files without importing them."""
    found = {}
    for path in BENCHES_DIR.glob("*.py"):
        if (text := _help_of(path)) is not None:
            found[path.stem] = text
    return {name: found[name] for name in sorted(found, key=lambda name: (_place(name), name))}


def load_bench(name: str) -> ModuleType:
    """The module of one measurement: HELP, add_arguments(parser), run(args) -> exit status."""
    return importlib.import_module(f"scripts.benches.{name}")


def add_common_arguments(parser: argparse.ArgumentParser, name: str) -> None:
    """What every measurement takes; one that needs another meaning adds the option again."""
    add_device(parser)
    add_json(parser, "the figures")
    parser.add_argument("--out", type=Path, metavar="DIR", help=f"keep {name}.json and {name}.txt in this folder too")
    # as after every verb; SUPPRESS keeps what was given before it
    parser.add_argument("--log-level", choices=LOG_LEVELS, default=argparse.SUPPRESS, help=argparse.SUPPRESS)


class _BenchParser(OneLineParser):
    """A parser that imports its measurement, and takes its options, when it is used."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs, conflict_handler="resolve")
        self._is_filled = False

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        if not self._is_filled:
            self._is_filled = True
            name = self.prog.split()[-1]
            add_common_arguments(self, name)
            load_bench(name).add_arguments(self)
        return super().parse_known_args(args, namespace)


def _help_of(path: Path) -> str | None:
    """HELP of a module's text, one line of it; None when it has none (a module that the measurements share)."""
    line = re.search(
        r"^HELP = (.+)$", path.read_text(), re.MULTILINE
    )  # parsing them all costs --help a tenth of a second
    return None if line is None else str(ast.literal_eval(line[1]))


def _place(name: str) -> int:
    return ORDER.index(name) if name in ORDER else len(ORDER)
