"""Passes in a real model's compiler: `torch.compile(model, backend=apply.backend([...]))`.

    captured graph -> sites -> each shown right on the first call's own values -> rewritten graph -> eager or Inductor

    from eval_harness.apply import backend
    compiled = torch.compile(model, backend=(passes := backend(["pass_dir"], then="inductor")))
    compiled(x); print(passes.report.render())

A graph is left as it is, and that is said once, where gradients are wanted (a pass has no backward) and under autocast
(which changes what operators compute). With sizes that Dynamo left symbolic, every new combination of shapes is checked
at its first call; one on which a site is wrong runs the graph without passes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
import torch.fx

from eval_harness.apply.folders import LoadedRule, load_folders
from eval_harness.apply.operators import RuleOperator, define_operator
from eval_harness.apply.report import ApplyReport, SiteReport
from eval_harness.apply.segments import Segment, emit, present, split
from eval_harness.apply.sites import Site, check_sites
from eval_harness.rewriting import AppliedMatch, Rewrite, rewrite

__all__ = ["ApplyReport", "PassBackend", "backend"]

logger = logging.getLogger(__name__)

Then = Literal["inductor", "eager"]
GRADIENTS = "gradients are wanted, and a pass has no backward; use torch.no_grad() or torch.inference_mode()"
AUTOCAST = "autocast is on, under which operators compute in other dtypes than the rules were shown right for"


def backend(
    pass_dirs: Sequence[str | Path | Mapping[str, str]] | str | Path,
    then: Then | Callable[..., Any] = "inductor",
    *,
    trusted: bool = False,
    options: Mapping[str, Any] | None = None,
) -> PassBackend:
    """A backend for torch.compile that applies pass folders, in order, and hands the rest on.

    then: "inductor", "eager" (the graph as Python calls), or another backend's callable. trusted: import folders that
    break the source rules. options: of TorchInductor, such as {"triton.cudagraphs": True}. Raises UserError for a
    folder that is none, breaks the rules, or does not load.
    """
    given = [pass_dirs] if isinstance(pass_dirs, str | Path) else list(pass_dirs)
    return PassBackend(load_folders(given, trusted=trusted), then, options or {})


class PassBackend:
    """One backend; `report` grows with every graph that it compiles."""

    def __init__(
        self, rules: Sequence[LoadedRule], then: Then | Callable[..., Any], options: Mapping[str, Any]
    ) -> None:
        self.rules, self.then, self.options = list(rules), then, dict(options)
        self.report = ApplyReport(rules=[(rule.folder, rule.name) for rule in self.rules])
        self._said: set[str] = set()

    def __call__(self, module: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        """What torch.compile calls once a captured graph."""
        number = self.report.num_graphs
        self.report.num_graphs += 1
        self.report.num_nodes += sum(n.op in ("call_function", "call_method") for n in module.graph.nodes)
        why = _why_not(module, example_inputs)
        if why:
            self.report.left.append(why)
            self._say(f"a graph is left as it is: {why}")
            return self._hand_on(module, example_inputs)
        parts = list(split(module))
        sites = self._find(parts, example_inputs)
        for site, reason in zip(sites, check_sites(module, sites, example_inputs), strict=True):
            site.reason = reason
            rule = site.operator.rule
            self.report.sites.append(SiteReport(number, rule.folder, rule.name, site.nodes, reason))
            if reason:
                self._say(f"{rule.folder} {rule.name}: a site is left as it was: {reason}")
        accepted = [site for site in sites if not site.reason]
        if not accepted:
            return self._hand_on(module, example_inputs)
        compiled = self._hand_on(self._rewritten(module, parts, accepted), example_inputs)
        if not any(isinstance(value, torch.SymInt) for value in example_inputs):
            return compiled
        return _Guarded(self, module, accepted, compiled, example_inputs)

    def hand_on_without_passes(self, module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        """The graph as it was, for shapes on which a site is wrong."""
        return self._hand_on(module, inputs)

    def say_shapes(self, site: Site, reason: str) -> None:
        rule = site.operator.rule
        self._say(f"{rule.folder} {rule.name}: these shapes run without passes: {reason}")
        self.report.left.append(f"shapes on which {rule.name} is wrong: {reason}")

    # ---- within

    def _find(self, parts: Sequence[Segment | torch.fx.Node], inputs: Sequence[Any]) -> list[Site]:
        """Every match, and for the report what overlaps and what matches nowhere."""
        device = _device(inputs)
        operators = {rule.key: RuleOperator(rule, device) for rule in self.rules}
        descriptions = [rule.description for rule in self.rules]
        sites: list[Site] = []
        for position, part in enumerate(parts):
            if isinstance(part, torch.fx.Node) or part.traced is None:
                continue
            found = rewrite(part.traced, descriptions)
            order = {node.name: place for place, node in enumerate(part.traced.ir.nodes)}
            for applied in found.matches:
                nodes = sorted(applied.match.members, key=order.__getitem__)
                sites.append(Site(position, applied, operators[applied.rule], nodes))
            self._note_misses(part, found)
        return sites

    def _note_misses(self, segment: Segment, found: Rewrite) -> None:
        assert segment.traced is not None
        for rule in self.rules:
            place = (rule.folder, rule.name)
            applied = sum(match.rule == rule.key for match in found.matches)
            alone = rewrite(segment.traced, [rule.description])
            self.report.overlaps[place] += max(0, alone.num_matches - applied)
            if not alone.num_matches:
                miss = alone.report.partition("\n")[0].removeprefix(f"{rule.key}: no match").lstrip("; ")
                self.report.misses.setdefault(place, miss or "nothing like its last operator")

    def _rewritten(
        self, module: torch.fx.GraphModule, parts: list[Segment | torch.fx.Node], accepted: Sequence[Site]
    ) -> torch.fx.GraphModule:
        descriptions = [rule.description for rule in self.rules]
        rewrites = {}
        for position in dict.fromkeys(site.segment for site in accepted):
            part = parts[position]
            assert isinstance(part, Segment) and part.traced is not None
            members = {site.applied.match.members for site in accepted if site.segment == position}
            rewrites[position] = rewrite(part.traced, descriptions, accept=_of_these(members))
        operators = {site.applied.rule: site.operator for site in accepted}
        defined: dict[tuple[str, tuple[type, ...]], Callable[..., Any]] = {}

        def replacement(key: str, arguments: tuple[Any, ...]) -> Callable[..., Any]:
            operator = operators[key]
            if self.then == "eager":
                return operator
            examples = [_example(value) for value in arguments]
            kind = (key, tuple(map(type, examples)))
            if kind not in defined:
                defined[kind] = define_operator(operator, examples)
            return defined[kind]

        return emit(module, parts, rewrites, replacement)

    def _hand_on(self, module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        if self.then == "eager":
            return module.forward
        if self.then == "inductor":
            from torch._inductor import config
            from torch._inductor.compile_fx import compile_fx

            with config.patch(self.options):
                compiled: Any = compile_fx(module, list(inputs))
                return compiled
        assert callable(self.then)
        return self.then(module, list(inputs))

    def _say(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            logger.warning("%s", text)


class _Guarded:
    """A compiled graph for any sizes, used at those on which every site was shown right."""

    def __init__(
        self,
        owner: PassBackend,
        module: torch.fx.GraphModule,
        sites: Sequence[Site],
        compiled: Callable[..., Any],
        inputs: Sequence[Any],
    ) -> None:
        self._owner, self._module, self._sites, self._compiled = owner, module, sites, compiled
        self._is_right = {_shapes(inputs): True}
        self._plain: Callable[..., Any] | None = None

    def __call__(self, *inputs: Any) -> Any:
        shapes = _shapes(inputs)
        if shapes not in self._is_right:
            reasons = check_sites(self._module, self._sites, inputs)
            for site, reason in zip(self._sites, reasons, strict=True):
                if reason:
                    self._owner.say_shapes(site, reason)
            self._is_right[shapes] = not any(reasons)
        if self._is_right[shapes]:
            return self._compiled(*inputs)
        return self._module(*inputs)


def _of_these(members: set[frozenset[str]]) -> Callable[[AppliedMatch], bool]:
    return lambda applied: applied.match.members in members


def _shapes(inputs: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(
        (tuple(map(present, value.shape)), value.dtype) if isinstance(value, torch.Tensor) else present(value)
        for value in inputs
    )


def _why_not(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> str:
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return GRADIENTS
    device = _device(inputs).type
    enters = any(getattr(node.target, "__name__", "") == "_enter_autocast" for node in module.graph.nodes)
    return AUTOCAST if enters or torch.is_autocast_enabled(device) else ""


def _device(inputs: Sequence[Any]) -> torch.device:
    """A GPU if any input is on one."""
    devices = [value.device for value in inputs if isinstance(value, torch.Tensor)]
    return next((device for device in devices if device.type == "cuda"), torch.device("cpu"))


def _example(value: Any) -> Any:
    """An argument's example; a node without one is the result of another replacement, and so a tensor."""
    if not isinstance(value, torch.fx.Node):
        return value
    return value.meta.get("example_value", value.meta.get("val", torch.empty(0)))
