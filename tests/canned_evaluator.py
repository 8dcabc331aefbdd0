"""An Evaluator whose verdicts are written in the candidate itself, for tests of the loop around it.

`# as=1.5` in any file: every graph CORRECT with that AS. `# wrong`, `# unstable`, `# harness-error`, `# violation`:
that end. It judges nothing: tests of evaluation use the real harness.
"""

from __future__ import annotations

import re
import threading
import time
from concurrent.futures import Future
from pathlib import Path

from data.graph import Graph
from data.task import Task
from eval_harness.candidate import MANIFEST_FILE, Candidate
from eval_harness.errors import JudgeError
from eval_harness.presets import EvaluationProtocol
from eval_harness.verdict import GraphVerdict, Outcome, Verdict, Violation

MODEL = """import torch

class GraphModule(torch.nn.Module):

    def forward(self, in_0, in_1):
        tmp_0 = in_0 + in_1
        tmp_1 = torch.nn.functional.layer_norm(tmp_0, ({width},), None, None, {eps})
        tmp_0 = None
        return (tmp_1,)
"""
META = """class Program_weight_tensor_meta_L_in_{i}_:
	name = "in_{i}"
	shape = [2, {width}]
	dtype = "torch.{dtype}"
	device = "cpu"
	mean = 0.0
	std = 1.0

"""


def make_graph(name: str = "g0", *, width: int = 8, dtype: str = "float32", eps: str = "1e-05") -> Graph:
    metas = "".join(META.format(i=i, width=width, dtype=dtype) for i in range(2))
    files = {
        "model.py": MODEL.format(width=width, eps=eps),
        "weight_meta.py": metas,
        "graph_net.json": '{"framework": "torch"}',
    }
    return Graph(name, files)


def make_task(task_id: str = "add_norm", num_graphs: int = 1) -> Task:
    return Task(task_id, tuple(make_graph(f"g{i}", width=8 * (i + 1)) for i in range(num_graphs)))


def pass_files(mark: str) -> dict[str, str]:
    return {MANIFEST_FILE: '["Fuse"]', "Fuse.py": f"# {mark}\n"}


class CannedEvaluator:
    """Thread-safe; evaluates one candidate at a time, in threads of its own."""

    def __init__(self, *, device: str = "cpu", log_path: Path | None = None, delay_s: float = 0.0) -> None:
        self.device = device
        self.submitted: list[tuple[str, str, str]] = []
        """Task, protocol, mark of each evaluation."""
        self._log_path = log_path
        self._delay_s = delay_s
        self._mutex = threading.Lock()

    def submit(
        self, candidate: Candidate, task: Task, *, protocol: EvaluationProtocol, seed: int | None = None
    ) -> Future[Verdict]:
        future: Future[Verdict] = Future()
        threading.Thread(target=self._evaluate, args=(future, candidate, task, protocol.name), daemon=True).start()
        return future

    def close(self) -> None:
        pass

    def _evaluate(self, future: Future[Verdict], candidate: Candidate, task: Task, protocol: str) -> None:
        text = "\n".join(candidate.files.values())
        with self._mutex:
            time.sleep(self._delay_s)
            if not future.set_running_or_notify_cancel():
                return
            self.submitted.append((task.task_id, protocol, text.split("\n")[0]))
            if self._log_path:
                with self._log_path.open("a") as file:
                    file.write(f"{task.task_id} {protocol}\n")
        if "# harness-error" in text:
            future.set_exception(JudgeError("the judge died"))
        else:
            future.set_result(canned_verdict(text, task, protocol, candidate.candidate_hash))


def canned_verdict(text: str, task: Task, protocol: str = "strict", candidate_hash: str = "0" * 64) -> Verdict:
    speed = re.search(r"# as=([\d.]+)", text)
    covered = re.search(r"# covered=([\d.]+)", text)
    outcome, as_score, first_t = Outcome.NO_MATCH, 0.1, None
    violations: list[Violation] = []
    if speed:
        outcome, as_score, first_t = Outcome.CORRECT, float(speed[1]), -6
    elif "# wrong" in text:
        outcome, as_score = Outcome.WRONG_VALUES, 0.147207
    elif "# violation" in text:
        outcome = Outcome.VIOLATION
        violations = [Violation(rule="source.import", layer="source", file="Fuse.py", line=1, message="no")]
    elif "# unstable" in text:
        outcome, as_score = Outcome.UNSTABLE, None
    graphs = [
        GraphVerdict(
            graph=graph.name,
            graph_hash=graph.content_hash,
            outcome=outcome,
            first_correct_t=first_t,
            speedup=as_score if speed else None,
            coverage=1.0 if speed else None,
            violations=violations,
        )
        for graph in task.graphs
    ]
    return Verdict(
        candidate_hash=candidate_hash,
        task_id=task.task_id,
        task_hash=task.content_hash,
        protocol=protocol,
        device="cpu",
        complete=outcome is not Outcome.UNSTABLE,
        as_score=as_score,
        as_covered=as_score if as_score is None or not covered else float(covered[1]),
        graphs=graphs,
    )
