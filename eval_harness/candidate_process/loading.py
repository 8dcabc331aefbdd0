"""What a worker runs: an imported pass folder, and one graph as a callable (eager, rewritten, or compiled)."""

from __future__ import annotations

import importlib
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from data.graph import Graph
from data.model_check import load_graph_module
from eval_harness.candidate_process.compiled import compile_callable
from eval_harness.candidate_process.dispatch_guard import DispatchGuard
from eval_harness.candidate_process.failures import CompileFailedError
from eval_harness.candidate_process.kernel_trace import traced
from eval_harness.candidate_process.rules import describe_rule, replacement_function
from eval_harness.coverage import time_nodes
from eval_harness.graph_ir import IRGraph
from eval_harness.oracle import to_float64
from eval_harness.rewriting import build_module
from eval_harness.verdict import Violation


def set_numba_threads(count: int) -> None:
    """Raise numba's thread count from the zygote's 1; nothing to do where numba is not installed."""
    try:
        import numba
    except ImportError:
        return
    numba.set_num_threads(min(count, numba.config.NUMBA_NUM_THREADS))  # type: ignore[attr-defined]


def load_pass(files: Mapping[str, str], rules: Sequence[str]) -> tuple[list[dict[str, Any]], dict[str, Callable]]:
    """Write the folder into this process's private storage, import each rule, and describe it as data.

    Files, not strings: Triton and numba read a kernel's source lines. What torch computes while a file is imported is a
    violation of the first rule that imports it. Raises CompileFailedError.
    """
    root = Path(tempfile.mkdtemp(prefix="pass_"))
    for path, text in files.items():
        target = root / "pass_dir" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text.encode())
    sys.path.insert(0, str(root))
    sys.dont_write_bytecode = True
    described: list[dict[str, Any]] = []
    functions: dict[str, Callable] = {}
    for rule in rules:
        guard = DispatchGuard()
        try:
            with guard:
                module = importlib.import_module(f"pass_dir.{rule}")
        except SystemExit as error:
            raise CompileFailedError(f"{rule}.py: ended the process at import ({error.code})") from None
        described.append(describe_rule(module, rule))
        described[-1]["violations"] += [_at_import(rule, found) for found in guard.violations()][:8]
        functions[rule] = replacement_function(module, rule)
    return described, functions


def _at_import(rule: str, found: Mapping[str, Any]) -> dict[str, Any]:
    message = f"{found['op']} runs when the file is imported; a file only defines, its replacement computes"
    return Violation(rule="dispatch.import-time", layer="dispatch", file=f"{rule}.py", message=message).model_dump()


class LoadedGraph:
    """One graph, ready to run on tensors in the order of forward's arguments."""

    def __init__(self) -> None:
        self.run: Callable[..., Any] = _nothing_loaded
        self.guard_report: list[dict[str, Any]] = []
        self._ir: IRGraph | None = None
        self._rules: Mapping[str, Callable] = {}
        self._num_outputs: Mapping[str, int] = {}
        self._device = torch.device("cpu")
        self.trace_report: list[dict[str, Any]] = []
        self._oracle: Callable[..., Any] | None = None

    def run_guarded(self, *inputs: torch.Tensor) -> Any:
        """One call with a dispatch guard around each replacement; what it saw is in guard_report."""
        self.guard_report.clear()
        return self._guarded_run(*inputs)

    def run_traced(self, *inputs: torch.Tensor) -> Any:
        """One call with the profiler around replacements; the kernels that it saw are in trace_report."""
        self.trace_report.clear()
        return self._traced_run(*inputs)

    @cached_property
    def _guarded_run(self) -> Callable[..., Any]:
        return self._with_each(self._guarded)

    @cached_property
    def _traced_run(self) -> Callable[..., Any]:
        return self._with_each(lambda rule, function: traced(function, rule, self._device, self.trace_report))

    def _with_each(self, wrap: Callable[[str, Callable], Callable]) -> Callable[..., Any]:
        """The graph with each replacement wrapped."""
        assert self._ir is not None
        wrapped = {rule: wrap(rule, function) for rule, function in self._rules.items()}
        return build_module(self._ir, wrapped, device=self._device, num_outputs=self._num_outputs).forward

    def _guarded(self, rule: str, function: Callable) -> Callable:
        def call_under_guard(*args: Any) -> Any:
            guard = DispatchGuard(args)
            with guard:
                result = function(*args)
            self.guard_report += [{"at": rule, **violation} for violation in guard.violations(result)]
            return result

        return call_under_guard

    def run_oracle(self, *inputs: torch.Tensor) -> Any:
        """The graph in float64."""
        assert self._ir is not None
        if self._oracle is None:
            self._oracle = build_module(to_float64(self._ir), {}, device=self._device).forward
        return self._oracle(*inputs)

    def time_nodes(self, inputs: Sequence[torch.Tensor], device: torch.device, repeats: int) -> dict[str, float]:
        """Median eager seconds of each node."""
        assert self._ir is not None
        return time_nodes(self._ir, inputs, device, repeats)


def load_graph(message: Mapping[str, Any], rules: Mapping[str, Callable], device: torch.device) -> LoadedGraph:
    """kind "rewritten": the judge's rewriting with the candidate's functions; "eager": the graph's own model.py."""
    loaded = LoadedGraph()
    loaded._device = device
    loaded._ir = IRGraph.from_json(message["ir"])
    if message["kind"] == "rewritten":
        loaded._rules, loaded._num_outputs = rules, message["num_outputs"]
        runner = build_module(loaded._ir, rules, device=device, num_outputs=loaded._num_outputs).forward
        if message["apply"] == "compile":
            original = build_module(IRGraph.from_json(message["original_ir"]), {}, device=device)
            runner = compile_callable(original, message["arguments"], how="substitute", substitute=runner)
    else:
        module = load_graph_module(Graph(message["name"], message["files"]), device)
        runner = module.forward
        if message["apply"] != "direct":
            runner = compile_callable(module, message["arguments"], how=message["apply"])
    loaded.run = runner
    return loaded


def _nothing_loaded(*inputs: torch.Tensor) -> Any:
    raise RuntimeError("no graph is loaded")
