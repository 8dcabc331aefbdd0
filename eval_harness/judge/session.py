"""Bench and Session: what the judge holds between evaluations, and the pair of workers of one evaluation.

Bench lives as long as the judge: the zygote, the device, the cores, what was learnt about graphs. Session lives for
one evaluation: a reference process and a candidate process, forked alike, pinned to the same cores. A candidate process
that was lost (crash, time out) is replaced by a fresh one, and the pass is loaded anew.
"""

from __future__ import annotations

import os
import random
import time
from dataclasses import dataclass, field
from typing import Any

from data.graph import META_CLASS_PREFIX, Graph
from eval_harness.candidate import Candidate
from eval_harness.errors import DeviceLostError, HarnessError, ReferenceFailedError
from eval_harness.graph_ir import IRFormatError
from eval_harness.judge.workers import Worker, WorkerFailure, Zygote
from eval_harness.presets import EvaluationProtocol
from eval_harness.rewriting import RuleDescription
from eval_harness.tracing import TracedGraph, trace_graph
from eval_harness.variants import VariantSource

HELLO_TIMEOUT_S = 120.0
PROBE_TIMEOUT_S = 30.0
INDUCTOR = "inductor"
EAGER = "eager"


@dataclass
class Bench:
    """The judge's standing equipment for one device."""

    device: str
    zygote: Zygote
    cores: list[int]
    """Both workers are pinned to these: they never run at once, and a difference between cores would be a bias."""
    traced: dict[str, TracedGraph] = field(default_factory=dict)
    """Content hash -> traced graph."""
    node_seconds: dict[str, dict[str, float]] = field(default_factory=dict)
    """Content hash -> eager seconds of each node, for coverage."""
    variants: dict[str, VariantSource] = field(default_factory=dict)
    """Content hash -> the graph at shapes outside the task."""
    oracle_fits: dict[str, bool] = field(default_factory=dict)
    """Content hash and input mode -> whether eager can meet the float64 oracle at all."""
    baseline_worker: Worker | None = None
    """Runs baselines, which are trusted code, over many evaluations: Inductor's first compilation in a process takes
    tens of seconds on a CPU (imports, precompiled headers), every later one two."""
    aa_floor: float | None = None
    """The machine's A/A deviation as a log ratio; measured at the first timing."""

    @classmethod
    def open(cls, device: str) -> Bench:
        cores = sorted(os.sched_getaffinity(0))
        # CUDA: one core drives the device. CPU: kernels use all cores.
        chosen = cores[-1:] if device.startswith("cuda") else cores
        zygote = Zygote(num_threads=len(chosen))
        warm_tracing()  # seconds of imports, spent while the zygote imports too
        zygote.wait_until_ready()
        return cls(device, zygote, chosen)

    def close(self) -> None:
        self.zygote.close()

    def trace(self, graph: Graph) -> TracedGraph:
        """The graph as data, traced once."""
        if graph.content_hash not in self.traced:
            self.traced[graph.content_hash] = trace_graph(graph)
        return self.traced[graph.content_hash]

    def worker_for_baselines(self) -> Worker:
        """The standing worker, or a fresh one if it was lost."""
        if self.baseline_worker is None or not self.baseline_worker.alive:
            (self.baseline_worker,) = self.fork("reference")
        return self.baseline_worker

    def fork(self, *roles: str, checks_plain: bool = True) -> list[Worker]:
        """Confined workers that have said hello; they start side by side. Raises HarnessError."""
        settings: dict[str, Any] = {
            "checks_plain": checks_plain,
            "device": self.device,
            "num_threads": len(self.cores),
            "confinement": {"device": self.device.split(":")[0]},
        }
        workers = [self.zygote.fork(role=role, **settings) for role in roles]
        try:
            for worker in workers:
                worker.post("hello", timeout_s=HELLO_TIMEOUT_S)
            for worker in workers:
                hello = worker.wait(timeout_s=HELLO_TIMEOUT_S)
                worker.confinement = {str(layer): str(state) for layer, state in hello["confinement"].items()}
        except WorkerFailure as failure:
            output = worker.output().strip().splitlines()
            for other in workers:
                other.kill()
            last = f" ({output[-1]})" if output else ""
            raise HarnessError(f"a worker did not start on {self.device}: {failure.message}{last}") from None
        return workers


def warm_tracing() -> None:
    """Trace a graph of one operator: the first trace of a process imports what FakeTensorMode needs."""
    model = "import torch\nclass GraphModule(torch.nn.Module):\n def forward(self, in_0):\n  return (in_0 + in_0,)"
    meta = f'class {META_CLASS_PREFIX}L_in_0_:\n\tname = "in_0"\n\tshape = [1]\n\tdtype = "torch.float32"\n'
    files = {"model.py": model, "weight_meta.py": meta, "graph_net.json": "{}"}
    trace_graph(Graph("warm", files))


class Session:
    """The two processes of one evaluation."""

    def __init__(self, bench: Bench, protocol: EvaluationProtocol, seed: int, *, is_baseline: bool = False) -> None:
        self.bench = bench
        self.protocol = protocol
        self.generator = random.Random(seed)
        self.started = time.monotonic()
        self.rules: list[RuleDescription] = []
        self._is_baseline = is_baseline
        self._candidate: Worker
        if is_baseline:
            (self.reference,) = bench.fork("reference")
            self._candidate = bench.worker_for_baselines()
        else:
            self.reference, self._candidate = bench.fork(
                "reference", "candidate", checks_plain=protocol.checks("behaviour")
            )
        self._candidate_files: dict[str, Any] | None = None
        self._printed = ""

    @property
    def candidate(self) -> Worker:
        """The candidate process; a fresh one with the pass loaded if the last was lost."""
        if self._candidate.alive:
            return self._candidate
        if self._is_baseline:
            self._candidate = self.bench.worker_for_baselines()
        else:
            self._printed += self._candidate.output()
            (self._candidate,) = self.bench.fork("candidate", checks_plain=self.protocol.checks("behaviour"))
            if self._candidate_files is not None:
                self._load(self._candidate)
        return self._candidate

    def load_candidate(self, candidate: Candidate) -> None:
        """Import the pass in the candidate process and learn its rules. Raises WorkerFailure."""
        worker = self.candidate
        self._candidate_files = {"files": dict(candidate.files), "rules": list(candidate.rule_names)}
        self.rules = self._load(worker)

    def _load(self, worker: Worker) -> list[RuleDescription]:
        assert self._candidate_files is not None
        answer = worker.ask("load_pass", timeout_s=self.protocol.graph_timeout_s, **self._candidate_files)
        try:
            return [RuleDescription.from_json(rule) for rule in answer["rules"]]
        except (IRFormatError, KeyError, TypeError) as error:
            raise WorkerFailure("compile", f"the pass describes itself wrongly: {error}") from None

    def seed(self) -> int:
        """A fresh secret seed for one draw."""
        return self.generator.getrandbits(48)

    def seconds_left(self) -> float:
        return self.protocol.task_timeout_s - (time.monotonic() - self.started)

    def check_device(self) -> None:
        """After a lost candidate on CUDA: raises DeviceLostError unless the device still computes."""
        try:
            healthy = self.reference.ask("probe", timeout_s=PROBE_TIMEOUT_S)["healthy"]
        except WorkerFailure as failure:
            raise DeviceLostError(f"{self.bench.device} no longer answers: {failure.message}") from None
        if not healthy:
            raise DeviceLostError(f"{self.bench.device} computes wrong values; restart the machine's driver")

    def ask_reference(self, op: str, **fields: Any) -> dict[str, Any]:
        """A request to the reference, whose failure is ours or the task's."""
        try:
            return self.reference.ask(op, timeout_s=self.protocol.graph_timeout_s, **fields)
        except WorkerFailure as failure:
            raise ReferenceFailedError(f"the graph fails in eager ({failure.kind}): {failure.message}") from None

    @property
    def printed(self) -> str:
        """What the candidate printed so far."""
        return self._printed + self._candidate.output()

    def confinement(self) -> dict[str, str]:
        return dict(self.reference.confinement)

    def close(self) -> None:
        self.reference.kill()
        if not self._is_baseline:
            self._candidate.kill()
