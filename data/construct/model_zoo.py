"""The model zoo: which models there are, the sizes of their inputs, and one of them built with a call to run.

Sources are `transformers` and `timm`; weights are random, nothing is downloaded. `python -m data.construct.model_zoo
check` builds and runs models, each in a process of its own, and prints a line a model.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from data.construct.zoo_entry import Choices, ModelEntry, spread_sizes
from data.construct.zoo_known import KNOWN_GOOD

if TYPE_CHECKING:  # listing models needs no torch
    import torch

    from data.construct.example import Example

__all__ = ["KNOWN_GOOD", "ModelEntry", "build_example", "find_model", "list_models", "size_variants", "symbols_of"]

SOURCES = ("transformers", "timm")


def list_models(sources: Sequence[str] = ("transformers",), *, only_known: bool = True) -> list[ModelEntry]:
    """The models of these sources, in a fixed order. ValueError for an unknown source, ImportError without timm.

    Of `transformers`, those that passed `check` with the version that KNOWN_GOOD names, or all that the installed
    version has; of `timm`, all that the installed version has.
    """
    entries: list[ModelEntry] = []
    for source in sources:
        if source == "transformers" and only_known:
            entries += KNOWN_GOOD
        elif source == "transformers":
            from data.construct.zoo_transformers import list_transformers

            entries += list_transformers()
        elif source == "timm":
            from data.construct.zoo_timm import list_timm

            entries += list_timm()
        else:
            raise ValueError(f"no zoo source is called {source!r}; there are {', '.join(SOURCES)}")
    return entries


def find_model(model_id: str) -> ModelEntry:
    """The entry with this id, known or not. ValueError names the nearest id there is."""
    source = model_id.partition(".")[0]
    known = {entry.model_id: entry for entry in KNOWN_GOOD}
    if model_id in known:
        return known[model_id]
    listed = list_models((source,), only_known=False) if source in SOURCES else list(KNOWN_GOOD)
    entries = {entry.model_id: entry for entry in listed}
    if model_id not in entries:
        nearest = difflib.get_close_matches(model_id, entries, n=1, cutoff=0.0)
        raise ValueError(f"the zoo has no model {model_id!r}; the nearest is {nearest[0]!r}")
    return entries[model_id]


def symbols_of(entry: ModelEntry) -> dict[str, int]:
    """The base sizes of the model's inputs by symbol, such as {"batch": 2, "sequence": 64}."""
    return {symbol: values[0] for symbol, values in _choices(entry).items()}


def size_variants(entry: ModelEntry, num: int = 10) -> list[dict[str, int]]:
    """The base sizes and up to num - 1 others, small to medium, all of them legal; the same at every call."""
    return spread_sizes(entry.model_id, _choices(entry), num)


def build_example(entry: ModelEntry, sizes: Mapping[str, int], dtype: torch.dtype, *, seed: int = 0) -> Example:
    """The model in evaluation mode and one call of it at these sizes; the same weights at every size, by the seed.

    ValueError names a size that is missing or not the model's.
    """
    symbols = symbols_of(entry)
    if set(sizes) != set(symbols):
        raise ValueError(f"{entry.model_id} is sized by {', '.join(symbols)}, not by {', '.join(sizes) or 'nothing'}")
    if entry.source == "timm":
        from data.construct.zoo_timm import build_timm

        return build_timm(entry, sizes, dtype, seed)
    from data.construct.zoo_transformers import build_transformers

    return build_transformers(entry, sizes, dtype, seed)


def _choices(entry: ModelEntry) -> Choices:
    if entry.source == "timm":
        from data.construct.zoo_timm import choices_of_timm

        return choices_of_timm(entry)
    from data.construct.zoo_transformers import choices_of

    return choices_of(entry)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; 0 if at least `--at-least` models passed, else 1."""
    from data.construct.zoo_check import check_models, known_source, line_of

    parser = argparse.ArgumentParser(prog="python -m data.construct.model_zoo", description=__doc__)
    commands = parser.add_subparsers(required=True)
    check = commands.add_parser("check", help="build and run models at all their sizes, a process each")
    check.add_argument("--sources", nargs="+", default=["transformers"], choices=SOURCES)
    check.add_argument("--all", action="store_true", help="every model that the source has, not the known ones only")
    check.add_argument("--only", nargs="+", metavar="MODEL_ID", help="these models")
    check.add_argument("--time-limit", type=float, default=60.0, metavar="SECONDS", help="of each model's process")
    check.add_argument("--dtype", default="float32", choices=("float32", "float16", "bfloat16"))
    check.add_argument("--num-sizes", type=int, default=10, metavar="N")
    check.add_argument("--at-least", type=int, default=0, metavar="N", help="exit status 1 if fewer models pass")
    check.add_argument("--write-known", type=Path, metavar="FILE", help="write those that passed as zoo_known.py")
    options = parser.parse_args(arguments)
    if options.only:
        entries = [find_model(model_id) for model_id in options.only]
    else:
        entries = list_models(options.sources, only_known=not options.all)
    passed = []
    for result in check_models(entries, options.dtype, options.num_sizes, options.time_limit):
        print(line_of(result), flush=True)
        passed += [result] if result.passed else []
        if options.write_known:  # after each, so that a check that is stopped leaves what it knows
            options.write_known.write_text(known_source(passed), encoding="utf-8")
    domains = Counter(result.entry.domain for result in passed)
    print(f"{len(passed)} of {len(entries)} models passed: {', '.join(f'{n} {name}' for name, n in domains.items())}")
    return 0 if len(passed) >= options.at_least else 1


if __name__ == "__main__":
    sys.exit(main())
