"""`passwright tasks stats`: what a set consists of, split by split."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING

from scripts.arguments import add_json, write_json
from scripts.tasks.reference import add_reference

if TYPE_CHECKING:  # pydantic takes longer to import than --help may take
    from data.task_stats import SplitStats, TaskStats

HELP = "counts by split, kind, domain, family, operators, sizes and dtypes"

SHOWN = 12
"""Entries of a long list; the others are counted."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_reference(parser)
    add_json(parser, "every count")


def run(args: argparse.Namespace) -> int:
    from data.passbench import load_tasks
    from data.task_stats import collect_stats

    stats = collect_stats(load_tasks(args.task))
    if args.json:
        write_json(args.json, stats.model_dump(mode="json"))
    if args.json != "-":
        print(render_stats(stats))
    return 0


def render_stats(stats: TaskStats) -> str:
    """A table of the splits, then the counts over all of them."""
    from data.task_stats import UNSTATED

    rows = [*stats.splits.items(), *([("all", stats.all)] if len(stats.splits) > 1 else [])]
    header = ("split", "tasks", "graphs", "sources", "sequences", "architectures", "largest group")
    table = [header, *((name, *map(str, _numbers(split))) for name, split in rows)]
    widths = [max(len(row[column]) for row in table) for column in range(len(header))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    total = stats.all
    for title, counts in (
        ("tasks by kind", total.kinds),
        ("tasks by number of graphs", total.group_sizes),
        ("graphs by number of operators", total.operator_counts),
        ("graphs by domain", total.domains),
        ("graphs by dtype", total.dtypes),
        ("graphs by family", total.families),
        ("graphs by architecture", total.architectures),
        ("graphs by licence", total.licences),
        ("graphs by elements of the largest argument", total.input_elements),
        ("arguments by rank", total.ranks),
        ("operators in distinct sources", total.operators),
    ):
        if set(counts) - {UNSTATED}:  # upstream's graphs state none of our fields
            lines += ["", f"{title}: {_shown(counts)}"]
    return "\n".join(lines)


def _numbers(split: SplitStats) -> tuple[int, ...]:
    return (
        split.num_tasks,
        split.num_graphs,
        split.num_sources,
        split.num_operator_sequences,
        split.num_architectures,
        split.max_group_size,
    )


def _shown(counts: Mapping[str, int]) -> str:
    items = list(counts.items())
    shown = ", ".join(f"{name} {count}" for name, count in items[:SHOWN])
    return shown + (f", and {len(items) - SHOWN} more" if len(items) > SHOWN else "")
