"""Bench and Session: what the judge holds between evaluations, and the pair of workers of one evaluation.

Bench lives as long as the judge: the zygote, the device, the cores, what was learnt about graphs. Session lives for
one evaluation: a reference process and a candidate process, forked alike, pinned to the same cores. A candidate process
that was lost (crash, time out) is replaced by a fresh one, and the pass is loaded anew.
"""

from __future__ import annotations

import logging
import os
import random
import time
from dataclasses import dataclass, field
from typing import Any

from data.graph import META_CLASS_PREFIX, Graph
from eval_harness import confinement_layers
from eval_harness.batch_invariance.row_axis import BatchLayout, NotApplicable
from eval_harness.candidate import Candidate
from eval_harness.errors import DeviceLostError, HarnessError, ReferenceFailedError
from eval_harness.graph_ir import IRFormatError
from eval_harness.judge.workers import Worker, WorkerFailure
from eval_harness.judge.zygote_handle import Zygote
from eval_harness.presets import EvaluationProtocol
from eval_harness.rewriting import RuleDescription
from eval_harness.tracing import TracedGraph, trace_graph
from eval_harness.variants import VariantSource

log = logging.getLogger(__name__)

HELLO_TIMEOUT_S = 120.0
MAX_KNOWN_GRAPHS = 1024
"""Traced graphs a judge keeps, the last ones used: it may live for weeks."""
DEADLINE_GRACE_S = 30.0
"""Beyond the task's time, in which a slow candidate still gets the answer to its last request out."""
PROBE_TIMEOUT_S = 30.0
MAX_PRINTED = 1 << 16
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
    num_kernels: dict[str, float] = field(default_factory=dict)
    """Content hash -> GPU kernels that a call of eager launches."""
    variants: dict[str, VariantSource] = field(default_factory=dict)
    """Content hash -> the graph at shapes outside the task."""
    batch_layouts: dict[str, BatchLayout | NotApplicable] = field(default_factory=dict)
    """Content hash -> where the batch lies in a graph or a replaced part."""
    oracle_fits: dict[str, bool] = field(default_factory=dict)
    """Content hash and input mode -> whether eager can meet the float64 oracle at all."""
    baseline_worker: Worker | None = None
    """Runs baselines, which are trusted code, over many evaluations: Inductor's first compilation in a process takes
    tens of seconds on a CPU (imports, precompiled headers), every later one two."""
    aa_floor: float | None = None
    """The machine's A/A deviation as a log ratio; measured at the first timing."""
    other_cores: list[int] = field(default_factory=list)
    """Where workers load and compile: not where another judge's pair may be timed on the same GPU."""
    told_of_confinement: bool = False
    """Layers that are off are said once a judge; every verdict records them."""

    @classmethod
    def open(cls, device: str) -> Bench:
        cores = sorted(os.sched_getaffinity(0))
        # CUDA: one core drives the device. CPU: kernels use all cores but one, which the judge and everybody else has:
        # with none left, one interrupted thread stops all the others of its process
        chosen = cores[-1:] if device.startswith("cuda") else cores[1:] or cores
        zygote = Zygote(num_threads=len(chosen))
        warm_tracing()  # seconds of imports, spent while the zygote imports too
        zygote.wait_until_ready()
        others = [core for core in cores if core not in chosen] if device.startswith("cuda") else chosen
        return cls(device, zygote, chosen, other_cores=others or cores)

    def close(self) -> None:
        self.zygote.close()

    def trace(self, graph: Graph) -> TracedGraph:
        """The graph as data, traced once."""
        traced = self.traced.pop(graph.content_hash, None) or trace_graph(graph)
        self.traced[graph.content_hash] = traced
        while len(self.traced) > MAX_KNOWN_GRAPHS:
            forgotten = next(iter(self.traced))
            del self.traced[forgotten]
            self.node_seconds.pop(forgotten, None)
            self.num_kernels.pop(forgotten, None)
            self.oracle_fits.pop(forgotten, None)
        return traced

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
            "cores": self.other_cores,
            "confinement": {"device": self.device.split(":")[0]},
        }
        workers: list[Worker] = []
        try:
            for role in roles:
                workers.append(self.zygote.fork(role, **settings))
            for worker in workers:
                worker.post("hello", timeout_s=HELLO_TIMEOUT_S)
            for worker in workers:
                hello = worker.wait(timeout_s=HELLO_TIMEOUT_S)
                worker.confinement = {str(layer): str(state) for layer, state in hello["confinement"].items()}
                worker.find_inner()
            self.zygote.see_off()  # workers killed before have ended meanwhile, and their device memory is free
        except (WorkerFailure, HarnessError) as failure:
            printed = "\n".join(worker.output() for worker in workers).strip().splitlines()
            for worker in workers:
                worker.kill()
            if isinstance(failure, HarnessError):
                raise
            last = f" ({printed[-1]})" if printed else ""
            raise HarnessError(f"a worker did not start on {self.device}: {failure.message}{last}") from None
        if not self.told_of_confinement and (text := confinement_layers.warning(workers[0].confinement)):
            log.warning("%s", text)
        self.told_of_confinement = True
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
        self.sent = random.Random(f"{seed} sent")
        """For what the workers get to see, such as offsets and orders: what is drawn next must not follow from it."""
        self.started = time.monotonic()
        self.rules: list[RuleDescription] = []
        self.is_baseline = is_baseline
        self._reference: Worker
        self._candidate: Worker
        if is_baseline:
            (self._reference,) = bench.fork("reference")
            self._candidate = bench.worker_for_baselines()
        else:
            self._reference, self._candidate = bench.fork(
                "reference", "candidate", checks_plain=protocol.checks("behaviour")
            )
            self._guard_against(self._candidate)
        self._candidate_files: dict[str, Any] | None = None
        self._printed = ""

    @property
    def candidate(self) -> Worker:
        """The candidate process; a fresh one with the pass loaded if the last was lost."""
        if not self._candidate.alive and self.is_baseline:
            self._candidate = self.bench.worker_for_baselines()
        elif not self._candidate.alive:
            self._replace_candidate()
            if self._candidate_files is not None:
                self._load(self._candidate)
        return self._candidate

    def _replace_candidate(self) -> None:
        self._printed = self.printed
        (self._candidate,) = self.bench.fork("candidate", checks_plain=self.protocol.checks("behaviour"))
        self._guard_against(self._candidate)

    @property
    def reference(self) -> Worker:
        """The reference process; a fresh one, with nothing loaded, if the last was lost."""
        if not self._reference.alive:
            (self._reference,) = self.bench.fork("reference")
        return self._reference

    def _guard_against(self, worker: Worker) -> None:
        """Limits of a process that runs a candidate: host memory, and the task's time over all of its answers."""
        worker.watch_memory(self.protocol.max_memory_share)
        worker.deadline = self.started + self.protocol.task_timeout_s + DEADLINE_GRACE_S

    def load_candidate(self, candidate: Candidate) -> None:
        """Import the pass in the candidate process and learn its rules. Raises WorkerFailure.

        A process that was killed, and not by us, gets a second try.
        """
        self._candidate_files = {"files": dict(candidate.files), "rules": list(candidate.rule_names)}
        try:
            self.rules = self._load(self._candidate)
        except WorkerFailure as failure:
            if failure.kind != "killed":
                raise
            self._replace_candidate()
            self.rules = self._load(self._candidate)

    @property
    def candidate_texts(self) -> dict[str, str]:
        """Files of the loaded pass folder: relative path -> text."""
        return self._candidate_files["files"] if self._candidate_files is not None else {}

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

    def extend(self, seconds: float) -> None:
        """Time that was spent waiting for the device is not the candidate's."""
        self.started += seconds
        if self._candidate.deadline is not None:
            self._candidate.deadline += seconds

    def drop_candidate(self) -> None:
        """End the candidate's process and wait until its memory is free; the next use makes a fresh one."""
        self._candidate.kill()
        self.bench.zygote.see_off()

    def after_failure(self) -> None:
        """After a candidate's crash, time-out or lack of memory: raises DeviceLostError unless the device computes.

        What it left on a device (a context in error, memory) goes with its process; the next graph finds a fresh one.
        """
        if self.bench.device.startswith("cuda"):
            self.drop_candidate()
        try:
            healthy = self.reference.ask("probe", timeout_s=PROBE_TIMEOUT_S)["healthy"]
        except (WorkerFailure, HarnessError) as failure:
            raise DeviceLostError(f"{self.bench.device} no longer answers: {failure}") from None
        if not healthy:
            raise DeviceLostError(f"{self.bench.device} computes wrong values; restart the machine's driver")

    def ask_reference(self, op: str, **fields: Any) -> dict[str, Any]:
        """A request to the reference, whose failure is ours or the task's, or a candidate's that disturbs it
        (blame.py)."""
        try:
            return self.reference.ask(op, timeout_s=self.protocol.graph_timeout_s, **fields)
        except WorkerFailure as failure:
            message = f"the graph fails in eager ({failure.kind}): {failure.message}"
            raise ReferenceFailedError(message, failure.kind) from None

    @property
    def printed(self) -> str:
        """What the candidate printed so far."""
        return (self._printed + self._candidate.output())[:MAX_PRINTED]

    def confinement(self) -> dict[str, str]:
        """The candidate's own process's layers, as it told them before any of the pass was loaded."""
        return dict(self._candidate.confinement)

    def close(self) -> None:
        self._reference.kill()
        if not self.is_baseline:
            self._candidate.kill()
