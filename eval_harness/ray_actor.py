"""The actor that holds a judge on a Ray cluster.

Ray sends the class by value: it must not need passwright to be loaded, so that a worker without it can say so.
"""

from __future__ import annotations

from typing import Any


def judge_actor_class() -> type:
    """A class for ray.remote. Defined in a function, so that it travels by value and not as a name to import."""

    class PasswrightJudge:
        """One judge process, as the child of this actor."""

        def __init__(self, device: str) -> None:
            self.device = device
            self.judge: Any = None

        def start(self, wire_version: int) -> dict[str, Any]:
            """Start the judge; {node_id, host, pid}, or {error, kind}."""
            import os
            import platform

            import ray

            host = platform.node()
            try:
                from eval_harness.judge.process import JudgeProcess
                from eval_harness.wire import WIRE_VERSION
            except ImportError as error:
                cure = (
                    "install the same passwright on every node, or give the executor "
                    "runtime_env={'working_dir': '<repository>'} or {'py_modules': [...]}"
                )
                return {"kind": "UserError", "error": f"node {host}: cannot import passwright ({error}); {cure}"}
            if wire_version != WIRE_VERSION:
                mismatch = f"node {host}: its passwright speaks wire version {WIRE_VERSION}, this one {wire_version}"
                return {"kind": "UserError", "error": f"{mismatch}; install the same on every node"}
            self.judge = JudgeProcess(self.device)
            try:
                self.judge.start()
            except Exception as error:
                return {"kind": "HarnessError", "error": f"node {host}: {error}"}
            return {"node_id": ray.get_runtime_context().get_node_id(), "host": host, "pid": os.getpid()}

        def ping(self) -> None:
            """Answers when it lives."""

        def evaluate(self, request_json: str) -> str:
            """One evaluation; the answer of wire.py as JSON. A failure of any kind is an answer."""
            import json

            from eval_harness.wire import EvaluationRequest, TaskRecord, answer_of

            try:
                request = EvaluationRequest.model_validate_json(request_json)
                assert isinstance(request.task, TaskRecord) and request.seed is not None
                ended = self.judge.evaluate(
                    request.subject(), request.task.task(), request.evaluation_protocol(), seed=request.seed
                )
            except Exception as error:
                ended = error
            return json.dumps(answer_of(ended))

        def stop(self) -> None:
            """Let the judge end its children and go."""
            if self.judge is not None:
                self.judge.close()

    return PasswrightJudge
