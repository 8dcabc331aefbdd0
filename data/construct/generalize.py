"""One template -> its instances: the same statements at every captured size, in float32 and the half dtypes. No torch.

TLDR: a template is a choice of statements of a full graph's base. The worker captured the model at up to ten sizes in
float32, and at the base sizes in half precision; the statements are cut out of each capture, and the half forms of the
other sizes are derived (dtype_forms.py). Every instance is to be run before it is kept: run_check.py.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from data.construct.cutting import Cut, cut, cut_graph
from data.construct.dtype_forms import DtypeForm, Values, cautious_form, learn_form, statement_in, values_in
from data.construct.families import family_of
from data.construct.metas import VALUES_FILE, read_values
from data.construct.model_result import BASE, variant_name
from data.construct.size_symbols import is_parameter
from data.construct.statements import Program, parse_program
from data.graph import MODEL_FILE, Graph, MalformedGraphError
from data.passbench import load_graph

logger = logging.getLogger(__name__)

DTYPES = ("float32", "float16", "bfloat16")
KEPT_GRAPHS = 2
"""Full graphs whose captures stay in memory: templates come graph after graph."""


@dataclass(frozen=True)
class Instance:
    """One form of a template."""

    graph: Graph
    variant: str
    """Sizes and dtype: "s3_f16"."""
    dtype: str
    """"float16"."""


def instances(
    graph_dir: str | Path, indices: Sequence[int], *, dtypes: Sequence[str] = DTYPES, kind: str = "fusible"
) -> Iterator[Instance]:
    """Every form of the base's statements `indices`, none twice; none at all if they cannot stand alone.

    graph_dir: a folder with a folder a variant (s0_f32 is the base), each with values.json. Two forms with the same
    model.py, shapes and dtypes are one: they differ in statistics only. Raises MalformedGraphError for a file that
    cannot be read.
    """
    full = load_captures(Path(graph_dir))
    template = full.cut(indices)
    if template is None:
        return
    seen: set[str] = set()
    for size_index in full.sizes:
        for dtype in dtypes:
            graph = full.graph(template, size_index, dtype, kind)
            if graph is not None and (key := signature(graph)) not in seen:
                seen.add(key)
                yield Instance(graph, variant_name(size_index, dtype), dtype)


def signature(graph: Graph) -> str:
    """sha256 over model.py and what each argument is, statistics apart: instances that are alike to any pass."""
    about = [(spec.shape, spec.dtype, spec.min_val, spec.max_val, spec.data) for spec in _arguments(graph)]
    return hashlib.sha256(f"{graph.model_source}\n{about!r}".encode()).hexdigest()


def _arguments(graph: Graph) -> list[Any]:
    return [graph.specs[name] for name in graph.arguments]


@lru_cache(maxsize=KEPT_GRAPHS)
def load_captures(graph_dir: Path) -> Captures:
    """Everything that was captured of one full graph. Raises MalformedGraphError if there is no base."""
    return Captures(graph_dir)


@dataclass(frozen=True)
class Capture:
    """One variant as it was written."""

    graph: Graph
    program: Program
    values: Values

    @classmethod
    def load(cls, path: Path) -> Capture:
        graph = load_graph(path)
        try:
            text = (path / VALUES_FILE).read_text(encoding="utf-8")
        except OSError:
            raise MalformedGraphError(f"{path / VALUES_FILE}: missing; extract the model again") from None
        program = parse_program(graph.model_source, str(path / MODEL_FILE))
        return cls(graph, program, read_values(text, str(path / VALUES_FILE)))


class Captures:
    """The variants of one full graph, and the half forms that follow from them."""

    def __init__(self, graph_dir: Path) -> None:
        self.graph_dir = graph_dir
        base_dir = graph_dir / BASE
        if not base_dir.is_dir():
            raise MalformedGraphError(
                f"{base_dir}: missing; extract the model, or import_variants.write_variants a graph"
            )
        self.base = Capture.load(base_dir)
        self._forms: dict[str, DtypeForm] = {}
        self._values: dict[tuple[int, str], Values] = {}

    @cached_property
    def sizes(self) -> dict[int, Capture]:
        """Size index -> float32 capture, the base first; only those whose statements are the base's."""
        found = {0: self.base}
        numbers = [path.name.removesuffix("_f32").removeprefix("s") for path in self.graph_dir.glob("s*_f32")]
        for index in sorted(int(number) for number in numbers if number.isdigit() and number != "0"):
            capture = Capture.load(self.graph_dir / f"s{index}_f32")
            if capture.program.operators == self.base.program.operators:
                found[index] = capture
        return found

    def form(self, dtype: str) -> DtypeForm:
        """How the float32 captures become this dtype."""
        if dtype not in self._forms:
            path = self.graph_dir / variant_name(0, dtype)
            base, name = self.base, f"torch.{dtype}"
            if path.is_dir():
                half = Capture.load(path)
                self._forms[dtype] = learn_form(base.program, base.values, half.program, half.values, name)
            else:
                self._forms[dtype] = cautious_form(base.program, base.values, name)
        return self._forms[dtype]

    def cut(self, indices: Sequence[int]) -> Cut | None:
        """The template, which is the same for every variant: it follows from how the statements are wired."""
        weights = [name for name, spec in self.base.graph.specs.items() if is_parameter(spec)]
        return cut(self.base.program, indices, tensors=self.base.values.keys(), parameters=weights)

    def graph(self, template: Cut, size_index: int, dtype: str, kind: str) -> Graph | None:
        """One instance; None if a statement or a value has no certain form there."""
        capture = self.sizes[size_index]
        program, values = capture.program, capture.values
        if dtype != "float32":
            form = self.form(dtype)
            before = {index: program.statements[index] for index in template.indices}
            after = {index: statement_in(form, statement) for index, statement in before.items()}
            if any(statement is None for statement in after.values()):
                return None
            if before == after and not any(name in form.values for name in template.inputs):
                return None  # it computes in float32, or with integers, in the half model too
            statements = tuple(after.get(statement.index) or statement for statement in program.statements)
            program, values = replace(program, statements=statements), self._half_values(size_index, dtype, form)
        if not all(name in values for name in (*template.inputs, *template.outputs)):
            return None
        variant = variant_name(size_index, dtype)
        net = self._net(program, template, variant, kind)
        name = f"{self.graph_dir.parent.name}/{self.graph_dir.name}/{template.indices[0]}_{variant}"
        return cut_graph(program, template, values, name, net=net, specs=capture.graph.specs)

    def _half_values(self, size_index: int, dtype: str, form: DtypeForm) -> Values:
        key = (size_index, dtype)
        if key not in self._values:
            self._values[key] = values_in(form, self.sizes[size_index].values)
        return self._values[key]

    def _net(self, program: Program, template: Cut, variant: str, kind: str) -> Mapping[str, Any]:
        """Keys of graph_net.json besides upstream's."""
        source = self.base.graph.net
        operators = [
            name for index in template.indices for name in program.statements[index].operator.split("+") if name
        ]
        about = dict(source.get("provenance") or {})
        provenance = {
            "model": about.get("model", source.get("model_name", "")),
            "architecture": about.get("architecture", ""),
            "graph": about.get("graph", 0),
            "range": [template.indices[0], template.indices[-1] + 1],
            "variant": variant,
            "licence": about.get("licence", ""),
        }
        return {
            "model_name": source.get("model_name", ""),
            "family": family_of(operators),
            "domain": source.get("domain", "other"),
            "kind": kind,
            "num_operators": len(operators),
            "provenance": provenance,
        }
