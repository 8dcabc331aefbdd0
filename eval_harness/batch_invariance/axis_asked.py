"""A graph that was asked once: traced, drawn, run. What the search for its batch axis works on."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from data.graph import Graph
from eval_harness.batch_invariance.axis_candidates import difference, parameters
from eval_harness.batch_invariance.axis_reference import Draws, Reference, ReferenceRefused, with_varied_integers


@dataclass(frozen=True)
class Asked:
    """The reference, the inputs that it was asked with, and its outputs."""

    reference: Reference
    draws: Draws
    base: list[torch.Tensor | None]
    """Outputs on draws.base; None for what is no tensor."""
    parameters: frozenset[int]
    """Arguments that are weights."""
    seed: int
    sparse: frozenset[int] = frozenset()
    """Inputs that are drawn with zeros."""

    @classmethod
    def begin(cls, graph: Graph, seed: int) -> Asked:
        """Trace, draw and run the graph. Raises ReferenceRefused."""
        reference = Reference.load(graph)
        draws = Draws.of(reference, graph, seed)
        reference, base = reference.first_run(draws.base)
        if (varied := with_varied_integers(graph)) is not graph:
            try:
                more = replace(reference, graph=varied)
                draws = Draws.of(more, varied, seed)
                reference, base, graph = more, more.run(draws.base), varied
            except ReferenceRefused:
                draws = Draws.of(reference, graph, seed)
        search = cls(reference, draws, base, parameters(graph, reference.ir), seed)
        silent = search._silent()
        loud = search._floats() - silent
        if not silent or not loud:
            return search
        # 1e30 * mask hides everything beside it unless the mask has zeros
        draws = Draws.of(reference, graph, seed, sparse=loud)
        sparse = replace(search, draws=draws, base=reference.run(draws.base), sparse=loud)
        return sparse if len(sparse._silent()) < len(silent) else search

    def _floats(self) -> frozenset[int]:
        given = enumerate(self.draws.base)
        return frozenset(i for i, x in given if x.is_floating_point() and i not in self.parameters and x.dim() > 0)

    def _silent(self) -> frozenset[int]:
        """Float inputs that change nothing, as a whole."""
        return frozenset(index for index in self._floats() if not self._is_heard(index))

    def _is_heard(self, index: int) -> bool:
        inputs = list(self.draws.base)
        inputs[index] = self.draws.others["other"][index]
        try:
            changed = difference(self.base, self.reference.run(inputs))
        except ReferenceRefused:
            return True
        return any(mask is None or bool(mask.any()) for mask in changed)

    @property
    def tensors(self) -> list[tuple[int, torch.Tensor]]:
        """Inputs that may hold the batch: no weights."""
        return [(index, x) for index, x in enumerate(self.draws.base) if index not in self.parameters]

    def why_hopeless(self) -> str:
        """Why no axis can be found at all; empty if one may be."""
        if not self.draws.base:
            return "the graph has no inputs"
        tensors = [output for output in self.base if output is not None]
        if not any(output.numel() for output in tensors):
            return "no output is a tensor with elements"
        if all(output.dim() == 0 for output in tensors):
            return "every output is a scalar: a reduction over all rows"
        if all(output.is_floating_point() and not bool(torch.isfinite(output).any()) for output in tensors):
            return "no output has a finite value: the graph's inputs cannot be drawn"
        return ""

    def name(self, index: int) -> str:
        """Of an argument."""
        return self.reference.graph.arguments[index]


def shapes_of(outputs: list[torch.Tensor | None]) -> list[torch.Size | None]:
    """Shapes of outputs; None for what is no tensor."""
    return [None if output is None else output.shape for output in outputs]
