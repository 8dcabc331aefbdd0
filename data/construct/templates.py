"""Captured models -> templates: which statements of which full graph make a subgraph, and of what kind. No torch.

TLDR: every model's base graphs are read as programs; fusible ranges come from fusible.json, classical ones from folding
the whole corpus, single operators from each program. A template says where to cut; generalize.py cuts it out of every
variant. Equal cuts at equal sizes are one template, wherever they were found.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from data.construct.build_config import SubgraphsConfig
from data.construct.cutting import cut, cut_source
from data.construct.effects import METADATA, SHARES_ANY, SHARES_FIRST
from data.construct.folding import fold
from data.construct.metas import VALUES_FILE, ValueRecord, read_values
from data.construct.model_result import BASE, FUSIBLE_FILE, ModelResult, Status, read_result
from data.construct.single_op import single_op_cuts
from data.construct.statements import Program, parse_program
from data.graph import MODEL_FILE

logger = logging.getLogger(__name__)

Kind = Literal["fusible", "classical", "single_op"]
_NO_COMPUTE = (SHARES_FIRST | SHARES_ANY | METADATA) - {"einsum"}
"""Views, casts that may be none, and reads of sizes."""


@dataclass(frozen=True)
class Template:
    """Statements of one full graph that form a subgraph at every size and dtype."""

    model_id: str
    graph: int
    """Of the model's graphs."""
    kind: Kind
    indices: tuple[int, ...]
    """Statements of the program."""

    @property
    def graph_dir(self) -> str:
        """Relative to the folder of models."""
        return f"{self.model_id}/graph_{self.graph}"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class BaseGraph:
    """A full graph at its base size."""

    model: ModelResult
    number: int
    program: Program
    values: dict[str, ValueRecord]
    """Name -> what every tensor was."""
    fusible_ranges: tuple[tuple[int, int], ...]

    @cached_property
    def tensors(self) -> frozenset[str]:
        return frozenset(self.values)


def read_models(models_dir: Path) -> list[ModelResult]:
    """Every model that gave a graph, by id."""
    results = [read_result(path) for path in sorted(models_dir.iterdir()) if path.is_dir()]
    return [result for result in results if result is not None and result.status is Status.DONE and result.graphs]


def read_base_graphs(models_dir: Path, models: Iterable[ModelResult]) -> Iterator[BaseGraph]:
    """The full graphs of these models at their base size."""
    for model in models:
        for number in model.graphs:
            graph_dir = models_dir / model.model_id / f"graph_{number}"
            base = graph_dir / BASE
            program = parse_program((base / MODEL_FILE).read_text(encoding="utf-8"), str(base / MODEL_FILE))
            values = read_values((base / VALUES_FILE).read_text(encoding="utf-8"), str(base / VALUES_FILE))
            report = graph_dir / FUSIBLE_FILE
            ranges = json.loads(report.read_text(encoding="utf-8"))["ranges"] if report.is_file() else []
            yield BaseGraph(model, number, program, values, tuple((start, stop) for start, stop in ranges))


def find_templates(graphs: Sequence[BaseGraph], config: SubgraphsConfig) -> list[Template]:
    """Every template of the corpus, model by model: fusible, then classical, then single operators."""
    seen: set[tuple[Kind, str]] = set()
    found = [
        *_distinct(_fusible(graphs, config), seen),
        *_distinct(_classical(graphs, config), seen),
        *_distinct(_single(graphs), seen),
    ]
    counts = Counter(template.kind for template in found)
    logger.info("templates: %s", ", ".join(f"{kind} {count}" for kind, count in counts.items()))
    return sorted(found, key=lambda template: (template.model_id, template.graph, template.kind, template.indices))


Candidate = tuple[BaseGraph, Kind, Sequence[int]]


def _distinct(candidates: Iterable[Candidate], seen: set[tuple[Kind, str]]) -> Iterator[Template]:
    """Those that can stand alone, each text at each size once."""
    for graph, kind, indices in candidates:
        found = cut(graph.program, indices, tensors=graph.tensors)
        if found is None:
            continue
        shapes = [(graph.values[name].shape, graph.values[name].dtype) for name in found.inputs]
        text = json.dumps([cut_source(graph.program, found), shapes])
        key = (kind, hashlib.sha256(text.encode()).hexdigest())
        if key not in seen:
            seen.add(key)
            yield Template(graph.model.model_id, graph.number, kind, tuple(indices))


def _fusible(graphs: Sequence[BaseGraph], config: SubgraphsConfig) -> Iterator[Candidate]:
    """Every plateau of K, and the shorter plateaus that begin where it begins and end at an operator that computes."""
    for graph in graphs:
        for start, stop in graph.fusible_ranges:
            computing = [index for index in range(start, stop) if _computes(graph.program.statements[index].operator)]
            ends = {stop, *(index + 1 for index in computing[1:])} if config.shorter_plateaus else {stop}
            for end in sorted(ends, reverse=True):
                if config.min_fusible_ops <= end - start <= config.max_fusible_ops:
                    yield graph, "fusible", range(start, end)


def _computes(operator: str) -> bool:
    return bool(operator) and operator not in _NO_COMPUTE


def _classical(graphs: Sequence[BaseGraph], config: SubgraphsConfig) -> Iterator[Candidate]:
    """Places of each folded sequence: one a model, then a second of each, up to the configured number.

    The whole corpus is folded, then each domain alone and each model alone: sixteen folds of everything find what is
    common to all, and nothing of what only images, or one architecture, have.
    """
    done: set[tuple[str, ...]] = set()
    for corpus in _corpora(graphs):
        folded = fold(
            [graph.program.operators for graph in corpus],
            max_folds=config.max_folds,
            min_ops=config.min_classical_ops,
            max_ops=config.max_classical_ops,
        )
        for result in folded.results:
            if result.operators in done:
                continue
            done.add(result.operators)
            by_model: dict[str, list[tuple[BaseGraph, range]]] = defaultdict(list)
            for place in result.occurrences:
                graph = corpus[place.sequence]
                by_model[graph.model.model_id].append((graph, range(place.start, place.stop)))
            for graph, indices in _in_turn(list(by_model.values()))[: config.occurrences_per_fold]:
                yield graph, "classical", indices


def _corpora(graphs: Sequence[BaseGraph]) -> Iterator[list[BaseGraph]]:
    yield list(graphs)
    for name in ("domain", "model_id"):
        values = dict.fromkeys(getattr(graph.model, name) for graph in graphs)
        for value in values if len(values) > 1 else ():
            yield [graph for graph in graphs if getattr(graph.model, name) == value]


def _single(graphs: Sequence[BaseGraph]) -> Iterator[Candidate]:
    for graph in graphs:
        for found in single_op_cuts(graph.program, graph.tensors):
            yield graph, "single_op", found.indices


def _in_turn(queues: Sequence[Sequence[Any]]) -> list[Any]:
    """The first of each queue, then the second of each, and so on."""
    most = max((len(queue) for queue in queues), default=0)
    return [queue[turn] for turn in range(most) for queue in queues if turn < len(queue)]
