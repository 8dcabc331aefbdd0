"""The graphs of a task as compact text: one full listing for each structure, and how the others differ from it.

Two graphs have one structure when their sources are the same but for literals; then only what differs is told: shapes
and dtypes of arguments, and literals by line. Few graphs get a line each, many get a table.
"""

from __future__ import annotations

from collections.abc import Sequence

from data.graph import Graph
from data.task import Task
from trajectories.graph_reading import GraphReading, read_graph, tensor_text
from trajectories.workspace import INDEX_FILE, graph_dir

_MIN_LISTING_CHARS = 400
"""A listing that would be cut below this is left out."""
_MANY = 8
"""Graphs of one structure beside the first, from which on they are told as a table."""


def render_graphs(task: Task, *, max_chars: int) -> str:
    """Listings and tables, at most max_chars characters; what is left out is said, and where to look."""
    groups: dict[str, list[GraphReading]] = {}
    for index, graph in enumerate(task.graphs):
        reading = read_graph(index, graph)
        groups.setdefault(reading.structure, []).append(reading)
    blocks: list[str] = []
    left = max_chars - 160  # the closing note
    num_unlisted = num_rows_left_out = 0
    for position, readings in enumerate(groups.values()):
        # every structure gets an equal share of what is left, so that the first does not take it all
        share = left // (len(groups) - position)
        block, rows_left_out = _render_group(readings, share)
        if not block:
            num_unlisted += len(readings)
            continue
        blocks.append(block)
        left -= len(block) + 2
        num_rows_left_out += rows_left_out
    if num_unlisted or num_rows_left_out:
        num_hidden = num_unlisted + num_rows_left_out
        blocks.append(f"({num_hidden} graphs are not shown here; {INDEX_FILE} names all of them.)")
    return "\n\n".join(blocks)[:max_chars]


def _render_group(readings: Sequence[GraphReading], max_chars: int) -> tuple[str, int]:
    """The text ("" if there is no room for any), and how many of its graphs it does not show."""
    first = readings[0]
    arguments = "\n".join(_argument_lines(first.graph))
    text = f"{_label(first)}\n{first.listing}\n{arguments}"
    if len(text) > max_chars:
        if max_chars < _MIN_LISTING_CHARS:
            return "", len(readings)
        note = f"\n... cut; see {graph_dir(first.index)}/model.py and weight_meta.py"
        return text[: max_chars - len(note)] + note, len(readings) - 1
    if len(readings) == 1:
        return text, 0
    if len(readings) > _MANY:
        header, rows = _table(readings)
    else:
        header = "The same with other shapes, dtypes or literals:"
        rows = [f"{_label(reading)} {_differences(first, reading)}" for reading in readings[1:]]
    text += f"\n{header}"
    for shown, row in enumerate(rows, start=1):
        row = f"\n{row}"
        if len(text) + len(row) > max_chars:
            return text, len(readings) - shown
        text += row
    return text, 0


def _label(reading: GraphReading) -> str:
    return f"{graph_dir(reading.index)} ({reading.graph.name.rstrip('/').split('/')[-1][-60:]}):"


def _differences(first: GraphReading, other: GraphReading) -> str:
    """What of `other` is not as in `first`; arguments that changed in the same way share an entry."""
    changed: dict[str, list[str]] = {}
    for name in other.graph.arguments:
        now = tensor_text(other.graph, name)
        if now != tensor_text(first.graph, name):
            changed.setdefault(now, []).append(name)
    parts = [f"{','.join(names)} {text}" for text, names in changed.items()]
    literals: dict[int, dict[str, None]] = {}
    for before, after in zip(first.literals, other.literals, strict=True):
        if before.text != after.text:
            literals.setdefault(before.line, {})[f"{before.text} -> {after.text}"] = None
    parts += [f"line {line}: {', '.join(changes)}" for line, changes in literals.items()]
    return "; ".join(parts) or "no difference but the statistics of its inputs"


def _table(readings: Sequence[GraphReading]) -> tuple[str, list[str]]:
    """Header and rows. A column for what varies, named by what stands in the listing; what varies together shares one.

    Shapes, dtypes and literals are columns; a literal (64,) that goes with a shape [64] shares its column.
    """
    first = readings[0]
    columns: dict[tuple[str, ...], list[str]] = {}

    def add(name: str, cells: list[str]) -> None:
        if len(set(cells)) > 1:
            columns.setdefault(tuple(_bare(cell) for cell in cells), []).append(name)

    kinds: dict[tuple[str, ...], list[str]] = {}
    shapes: dict[tuple[str, ...], list[str]] = {}
    for name in first.graph.arguments:
        texts = [_split(tensor_text(reading.graph, name)) for reading in readings]
        kinds.setdefault(tuple(kind for kind, _ in texts), []).append(name)
        shapes.setdefault(tuple(shape for _, shape in texts), []).append(name)
    for cells, names in [*kinds.items(), *shapes.items()]:
        add(f"{','.join(names)} {cells[0]}", list(cells))
    for number, literal in enumerate(first.literals):
        add(f"line {literal.line} {literal.text}", [reading.literals[number].text for reading in readings])
    rows = ["|".join([str(reading.index)] + [
        "=" if cells[number] == cells[0] else cells[number] for cells in columns
    ]) for number, reading in enumerate(readings)]  # fmt: skip
    titles = "|".join("; ".join(dict.fromkeys(members)) for members in columns.values())
    header = f"The same in graphs/N/ with other shapes, dtypes or literals (= as above):\nN|{titles}"
    return header, rows[1:]


def _split(text: str) -> tuple[str, str]:
    """ "int64[2, 8] in 0..9" -> ("int64 in 0..9", "[2, 8]")."""
    dtype, rest = text.split("[", 1)
    shape, range_text = rest.split("]", 1)
    return dtype + range_text, f"[{shape}]"


def _bare(cell: str) -> str:
    """A shape or a tuple without its brackets and blanks: the column's name shows them."""
    is_numbers = cell[:1] in "[(" and cell[-1:] in ")]"
    return cell[1:-1].replace(" ", "").rstrip(",") or cell if is_numbers else cell


def _argument_lines(graph: Graph) -> list[str]:
    by_text: dict[str, list[str]] = {}
    for name in graph.arguments:
        by_text.setdefault(tensor_text(graph, name), []).append(name)
    return [f"{', '.join(names)}: {text}" for text, names in by_text.items()]
