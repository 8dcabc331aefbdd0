"""The card of a set of tasks: what is in it, where it came from, and the command that makes it again. No torch."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from data.graph import Graph
from data.splits import operator_sequence
from data.task import Task

SHOWN_OPERATORS = 15
OPERATOR_BINS = ((1, 1), (2, 3), (4, 7), (8, 15), (16, 31), (32, 64))
GROUP_BINS = ((1, 1), (2, 3), (4, 7), (8, 15), (16, 31), (32, 50), (51, 1 << 30))
ELEMENT_BINS = (1 << 10, 1 << 14, 1 << 18, 1 << 20, 1 << 22, 1 << 60)


def write_card(tasks: Sequence[Task], report: Mapping[str, Any], parquet: Path) -> Path:
    """Write the Markdown card beside the Parquet file and return its path."""
    path = parquet.with_suffix(".md")
    path.write_text(card_text(tasks, report, parquet), encoding="utf-8")
    return path


def card_text(tasks: Sequence[Task], report: Mapping[str, Any], parquet: Path) -> str:
    """The whole card. Every figure is counted from the tasks or taken from the build's report."""
    name, models = parquet.stem, report["models"]
    splits = list(dict.fromkeys(task.split for task in tasks))
    by_split = {split: [task for task in tasks if task.split == split] for split in splits}
    sections = [
        f"# {name}",
        f"{len(tasks):,} tasks, {sum(len(task.graphs) for task in tasks):,} graphs of PyTorch models, in PassNet's "
        f"format; {parquet.stat().st_size / 2**20:.1f} MiB. Extracted from {models['num_models']} models of "
        f"{models['num_architectures']} architectures with random weights: nobody's weights and no data are in it.",
        "## Build it again",
        f"    passwright tasks build --config configs/tasks/{name}.yaml --out runs/tasks/{name}",
        _table(
            ("split", "tasks", "graphs", "graphs a task, median", "most", "operators, median", "most", "sequences"),
            [_split_row(split, mine) for split, mine in by_split.items()],
        ),
        "## Splits",
        "`eval`: fusible subgraphs, one operator sequence a task. `eval_classical` and `single_op` are held out too. "
        "`train` and `train_classical` hold no operator sequence that is held out, and none that is nearly one:",
        "\n".join(f"- {line}" for line in report["overlap"]),
        "Evaluation sequences are chosen one by one: the most transitions between operators that no chosen one has, "
        f"weighted by how rare the sequence is (model: {report['config']['splits']['sequence_model']}). Transitions of "
        "all fusible sequences (with a graph that was not refused) that the chosen ones have, and of the rare ones, "
        "which one or two sequences have; the other choices were not run, so a part of theirs might be refused:",
        _table(("chosen", "transitions", "rare transitions"), _coverage(report["coverage"])),
        "## Composition, in graphs",
        *_compositions(by_split),
        "## Most frequent operators",
        _table(("operator", "graphs"), _operators(tasks)),
        "## Sources",
        f"Architectures: {', '.join(models['architectures'])}.",
        "Models by domain: "
        + _counts(models["by_domain"])
        + ". Licence of the code that the graphs were extracted from: "
        + _counts(models["licences"])
        + ".",
        "## How it was built",
        f"Capturing the models took {models['cpu_s']:,} s of processor time. Stages of the run that wrote this file, "
        "which went on from what earlier runs had done:",
        _table(("stage", "s"), [(stage, f"{spent:,.0f}") for stage, spent in report["seconds"].items()]),
        f"Most memory of a worker: {models['peak_rss_mb']:,.0f} MB. Templates: {_counts(report['templates'])}; "
        f"instances: {_counts(report['instances'])}. Graphs that were chosen, run and refused: "
        f"{_counts(report['refused']) or 'none'}.",
    ]
    return "\n\n".join(sections) + "\n"


def _coverage(coverage: Mapping[str, Mapping[str, float]]) -> list[tuple[str, str, str]]:
    return [
        (name, f"{found['transitions']:.1%}", f"{found['rare_transitions']:.1%}") for name, found in coverage.items()
    ]


def _split_row(split: str, tasks: Sequence[Task]) -> tuple[object, ...]:
    sizes = [len(task.graphs) for task in tasks]
    sequences = {operator_sequence(task.graphs[0]) for task in tasks}
    lengths = [len(sequence) for sequence in sequences]
    return (
        f"`{split}`", len(tasks), sum(sizes), f"{statistics.median(sizes):g}", max(sizes),
        f"{statistics.median(lengths):g}", max(lengths), len(sequences),
    )  # fmt: skip


def _compositions(by_split: Mapping[str, Sequence[Task]]) -> list[str]:
    """One table a question, a column a split."""
    questions = {
        "domain": lambda graph: str(graph.net.get("domain", "other")),
        "family": lambda graph: str(graph.family or "none"),
        "dtype": _dtype,
        "operators": lambda graph: _bin(int(graph.net.get("num_operators", 0)), OPERATOR_BINS),
        "elements of the largest input": _largest,
    }
    tables = []
    for question, answer in questions.items():
        counts = {
            split: Counter(answer(graph) for task in tasks for graph in task.graphs)
            for split, tasks in by_split.items()
        }
        tables.append(_cross_table(question, counts))
    sizes = {split: Counter(_bin(len(task.graphs), GROUP_BINS) for task in tasks) for split, tasks in by_split.items()}
    return [*tables, "Tasks by the number of their graphs:", _cross_table("graphs", sizes)]


def _cross_table(question: str, counts: Mapping[str, Counter[str]]) -> str:
    total: Counter[str] = sum(counts.values(), Counter())
    order = (
        sorted(total, key=_first_number)
        if question not in ("domain", "family", "dtype")
        else list(dict(total.most_common()))
    )
    rows = [(answer, *(counts[split][answer] for split in counts)) for answer in order]
    return _table((question, *(f"`{split}`" for split in counts)), rows)


def _operators(tasks: Iterable[Task]) -> list[tuple[str, int]]:
    found: Counter[str] = Counter()
    for task in tasks:
        for operator in set(operator_sequence(task.graphs[0])):
            found[operator] += len(task.graphs)
    return found.most_common(SHOWN_OPERATORS)


def _dtype(graph: Graph) -> str:
    dtypes = [spec.dtype.removeprefix("torch.") for spec in graph.specs.values()]
    return next((dtype for dtype in ("bfloat16", "float16", "float32") if dtype in dtypes), "integers only")


def _largest(graph: Graph) -> str:
    most = max((spec.num_elements for spec in graph.specs.values()), default=0)
    bound = next(bound for bound in ELEMENT_BINS if most <= bound)
    return f"<= {bound:,}" if bound < 1 << 60 else f"> {ELEMENT_BINS[-2]:,}"


def _bin(value: int, bins: Sequence[tuple[int, int]]) -> str:
    for low, high in bins:
        if low <= value <= high:
            return f"{low}" if low == high else (f"{low}-{high}" if high < 1 << 30 else f"{low} and more")
    return f"over {bins[-1][1]}"


def _first_number(text: str) -> tuple[int, str]:
    digits = "".join(character for character in text.split("-")[0] if character.isdigit())
    return (int(digits) if digits else 0) + text.startswith(">"), text


def _counts(found: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in found.items())


def _table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += [
        "| " + " | ".join(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row) + " |" for row in rows
    ]
    return "\n".join(lines)
