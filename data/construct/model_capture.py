"""One model of a zoo -> its graphs on disk at the base sizes, at other sizes and in other dtypes, and fusible ranges.

What is kept is decided here: a base graph that meets PassNet's five constraints, and those of its variants whose
statements are wired as the base's. What is left out is noted with the reason. model_worker.py makes a result of it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from data.construct.constraints import RejectedGraphError, check_constraints
from data.construct.extract import CapturedGraph, capture
from data.construct.full_graph import FullGraph, Wiring, first_difference, full_graph, write_full_graph
from data.construct.model_result import (
    BASE,
    FUSIBLE_FILE,
    ModelConfig,
    PhaseClock,
    Rejection,
    one_line,
)
from data.passbench import load_graph

logger = logging.getLogger(__name__)

MAX_BREAK_CHARS = 200


class ModelCapture:
    """The graphs of one model. At most one capture is in memory; what is kept of the base is how it is wired."""

    def __init__(self, zoo: Any, entry: Any, model_dir: Path, config: ModelConfig, phase: PhaseClock) -> None:
        self.zoo = zoo
        self.entry = entry
        self.model_dir = model_dir
        self.config = config
        self.phase = phase
        self.num_parameters = 0
        self.graph_breaks: dict[str, int] = {}
        self.wirings: dict[int, Wiring] = {}
        """Number of each base graph that was written -> how it is wired."""
        self.variants: dict[str, dict[str, int]] = {}
        self.skipped: dict[str, str] = {}
        self.rejected: list[Rejection] = []

    def capture_base(self, sizes: dict[str, int]) -> None:
        """Check every graph at the base sizes and write those that pass. Raises ValueError if none does."""
        torch._dynamo.utils.counters.clear()
        captured = self._capture(BASE, sizes, "float32")
        for reason, count in torch._dynamo.utils.counters["graph_break"].items():
            self.graph_breaks[reason.splitlines()[0][:MAX_BREAK_CHARS]] = count
        for number, entry in enumerate(captured):
            try:
                with self.phase("write", BASE):
                    full = self._full_graph(entry, number, BASE)
                with self.phase("check", BASE):
                    findings = check_constraints(full.graph, custom_ops=full.custom_ops)
            except RejectedGraphError as error:
                findings = [error.finding]
            if not findings:
                with self.phase("write", BASE):
                    write_full_graph(full, self._graph_dir(number) / BASE)
                self.wirings[number] = full.wiring
            self.rejected += [Rejection(graph=number, constraint=f.constraint, reason=f.reason) for f in findings]
        if not self.wirings:
            reasons = "; ".join(f"not {entry.constraint}: {entry.reason}" for entry in self.rejected)
            raise ValueError(f"no graph is left of {len(captured)}: {reasons}" if captured else "it ran no graph")
        self.variants[BASE] = sizes

    def capture_variant(self, variant: str, sizes: dict[str, int], dtype: str) -> None:
        """Write those graphs of another size or dtype that are wired as the base's."""
        try:
            captured = dict(enumerate(self._capture(variant, sizes, dtype)))
        except Exception as error:  # this size or dtype does not run; the others may
            logger.exception("%s %s", self.entry.model_id, variant)
            self.skipped[variant] = one_line(error)
            return
        for number, wiring in self.wirings.items():
            where = f"graph_{number}/{variant}"
            if number not in captured:
                self.skipped[where] = f"only {len(captured)} graphs at these sizes"
                continue
            with self.phase("write", variant):
                try:
                    full = self._full_graph(captured[number], number, variant)
                except RejectedGraphError as error:
                    self.skipped[where] = str(error.finding)
                    continue
                if full.wiring != wiring:
                    self.skipped[where] = first_difference(wiring, full.wiring)
                    continue
                write_full_graph(full, self._graph_dir(number) / variant)
                self.variants[variant] = sizes

    def find_fusible(self, number: int) -> None:
        """Write fusible.json of one graph, read again from its folder: the capture is gone."""
        from data.construct.fusible import analyse  # brings the compiler along

        graph_dir = self._graph_dir(number)
        with self.phase("fusible", graph_dir.name):
            try:
                graph = load_graph(graph_dir / BASE, name=self._name(number, BASE))
                report = analyse(graph, backend=self.config.backend)
            except Exception as error:  # the compiler's failure; the graph itself stays
                logger.exception("%s: no fusible ranges", self._name(number, BASE))
                self.skipped[f"{graph_dir.name}/{FUSIBLE_FILE}"] = one_line(error)
                return
        about = {
            "kernels": list(report.kernels),
            "ranges": [list(pair) for pair in report.ranges],
            "backend": report.backend,
            "num_compiles": report.num_compiles,
        }
        (graph_dir / FUSIBLE_FILE).write_text(json.dumps(about) + "\n", encoding="utf-8")

    def _capture(self, variant: str, sizes: Mapping[str, int], dtype: str) -> list[CapturedGraph]:
        with self.phase("build", variant):
            example = self.zoo.build_example(self.entry, sizes, getattr(torch, dtype), seed=self.config.seed)
            self.num_parameters = sum(parameter.numel() for parameter in example.module.parameters())
        with self.phase("capture", variant):
            torch.manual_seed(self.config.seed)  # a model that draws, draws the same every time
            return capture(example.module, example.args, example.kwargs)

    def _full_graph(self, captured: CapturedGraph, number: int, variant: str) -> FullGraph:
        entry = self.entry
        provenance = {
            "model": entry.origin,
            "architecture": entry.architecture,
            "graph": number,
            "variant": variant,
            "licence": entry.licence,
        }
        net = {"source": entry.source, "domain": entry.domain, "provenance": provenance}
        return full_graph(captured, self._name(number, variant), model_name=entry.model_id, net=net)

    def _name(self, number: int, variant: str) -> str:
        return f"{self.entry.model_id}/graph_{number}/{variant}"

    def _graph_dir(self, number: int) -> Path:
        return self.model_dir / f"graph_{number}"
