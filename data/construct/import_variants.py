"""A full graph that came without its model -> the folder of variants that the worker writes for a model at hand.

Sizes are changed by text (resizing.py), values are measured by running each statement on inputs drawn from the metas.
No half-precision captures are written: generalize.py derives those forms by its cautious rule.
"""

from __future__ import annotations

import itertools
import logging
import shutil
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch

from data.construct.extract import measure
from data.construct.metas import VALUES_FILE, ValueRecord, values_text
from data.construct.model_result import variant_name
from data.construct.resizing import ResizeError, resize
from data.construct.size_symbols import SizeSymbol, size_symbols
from data.construct.statements import parse_program
from data.device_mapping import map_devices
from data.graph import MODEL_FILE, Graph
from data.inputs import draw_inputs, torch_dtype
from data.model_check import check_model_source
from data.passbench import write_graph
from data.syntax import parse_source

logger = logging.getLogger(__name__)

MEASURE_SEED = 7
MAX_VARIANTS = 10
"""Sizes of one graph, the captured one among them (the paper's ten)."""
MAX_TRIES = 40
MAX_GROWTH = 4
"""Arguments may take this many times the bytes that they were captured with."""
_FACTORS = tuple(map(Fraction, ("2", "1/2", "3", "3/2", "4", "1/4", "5", "3/4", "8")))


def write_variants(graph: Graph, graph_dir: str | Path, *, count: int = MAX_VARIANTS) -> dict[str, dict[str, int]]:
    """Write graph_dir/s0_f32 (the graph itself), s1_f32, ... with values.json; variant -> the sizes changed in it.

    Raises MalformedGraphError if the graph may not be run or its statements cannot be read, and whatever it raises when
    it runs at its own sizes.
    """
    path = Path(graph_dir)
    changes: dict[str, dict[str, int]] = {}
    for index, (change, variant) in enumerate(shape_variants(graph, count)):
        name = variant_name(index, "float32")
        values = measure_values(variant)
        staged = path / f".{name}.partial"
        shutil.rmtree(staged, ignore_errors=True)
        write_graph(variant, staged)
        (staged / VALUES_FILE).write_text(values_text(values), encoding="utf-8")
        shutil.rmtree(path / name, ignore_errors=True)
        staged.replace(path / name)
        changes[name] = change
    return changes


def shape_variants(graph: Graph, count: int = MAX_VARIANTS) -> Iterator[tuple[dict[str, int], Graph]]:
    """(sizes changed, graph): the graph itself, then up to count - 1 others that run. Raises MalformedGraphError."""
    yield {}, graph
    seen = {tuple(spec.shape for spec in graph.specs.values())}
    failed: dict[str, int] = {}
    num_found = 1
    for change in itertools.islice(_changes(size_symbols(graph)), MAX_TRIES):
        if num_found >= count:
            return
        if any(failed.get(name, 0) > 1 for name in change):  # twice refused: it is tied to something that is fixed
            continue
        try:
            variant = resize(graph, change)
        except ResizeError as error:
            logger.debug("%s", error)
            for name in change:
                failed[name] = failed.get(name, 0) + 1
            continue
        shapes = tuple(spec.shape for spec in variant.specs.values())
        if shapes not in seen and _num_bytes(variant) <= MAX_GROWTH * max(_num_bytes(graph), 1 << 20):
            seen.add(shapes)
            num_found += 1
            yield change, variant


def measure_values(graph: Graph, *, seed: int = MEASURE_SEED) -> dict[str, ValueRecord]:
    """Name -> what it was, of every argument and every tensor that the program makes, drawn from the metas.

    Names are those of parse_program, in which each is assigned once.
    """
    check_model_source(graph)
    program = parse_program(graph.model_source, f"{graph.name}/{MODEL_FILE}")
    names: dict[str, Any] = dict(draw_inputs(graph, seed=seed))
    found = {name: measure(value) for name, value in names.items()}
    captured = "cuda" if "cuda" in graph.model_source else "cpu"
    namespace = {"torch": torch, "device": torch.device, "inf": torch.inf, "nan": torch.nan}
    last_use = {name: indices[-1] for name, indices in program.uses.items()}
    with torch.no_grad():
        for statement in program.statements:
            tree = map_devices(parse_source("\n".join(statement.lines)), captured=captured, target="cpu")
            exec(compile(tree, f"{graph.name}/{MODEL_FILE}", "exec"), namespace, names)
            if statement.target is not None and isinstance(names[statement.target], torch.Tensor):
                found[statement.target] = measure(names[statement.target])
            for name in (*statement.reads, statement.target):
                if name is not None and last_use.get(name, -1) <= statement.index:
                    names.pop(name, None)
    return found


def _changes(symbols: Mapping[str, SizeSymbol]) -> Iterator[dict[str, int]]:
    """Sizes to try: each symbol alone, then all that were stated together, factor by factor."""
    for factor in _FACTORS:
        scaled = {name: _scaled(symbol.size, factor) for name, symbol in symbols.items()}
        fitting = {name: size for name, size in scaled.items() if size is not None}
        yield from ({name: size} for name, size in fitting.items())
        if len(fitting) > 1 and not any(name.startswith(("leading_", "size_")) for name in fitting):
            yield fitting


def _scaled(size: int, factor: Fraction) -> int | None:
    """None if the size is no whole number then, or 1, at which an axis is broadcast."""
    scaled = size * factor
    return int(scaled) if scaled.denominator == 1 and scaled > 1 else None


def _num_bytes(graph: Graph) -> int:
    return sum(spec.num_elements * torch_dtype(spec.dtype).itemsize for spec in graph.specs.values())
