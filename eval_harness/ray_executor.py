"""RayExecutor: judges as actors of a Ray cluster that the user has started. Needs the extra `ray`.

    submit -> JudgePool -> RayJudge (a handle in this process) -> an actor with its GPU -> a JudgeProcess, its child

An actor that is lost with its machine still there counts as a lost judge, like a judge that died here; one that is lost
with its machine counts as nobody's failure. Either way a fresh actor takes its place and the evaluation is tried again.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from typing import Any

import ray
from ray.exceptions import (
    ActorUnavailableError,
    AuthenticationError,
    GetTimeoutError,
    OutOfMemoryError,
    RayActorError,
    RayError,
)

from data.task import Task
from eval_harness.candidate import Candidate
from eval_harness.errors import HarnessError, JudgeError, MachineLostError, UserError
from eval_harness.judge_pool import CLOSE_GRACE_S, DEFAULT_MAX_WAITING, JudgePool
from eval_harness.pool_records import Progress
from eval_harness.presets import EvaluationProtocol
from eval_harness.ray_actor import judge_actor_class
from eval_harness.verdict import Verdict
from eval_harness.wire import WIRE_VERSION, EvaluationRequest, verdict_of

log = logging.getLogger(__name__)

START_TIMEOUT_S = 600.0
"""For a free place on the cluster and the start of a judge on it."""
NODE_LOSS_WAIT_S = 20.0
"""Ray notices a lost node some seconds after the loss of what ran on it."""
LOCAL_STORE_BYTES = 128 << 20
"""Requests and answers are text."""
ANSWER_GRACE_S = 900.0
"""Beyond the judge's own limits, which end an evaluation before: only a hung actor meets this."""


class RayJudge:
    """One actor on the cluster, as a judge of a pool."""

    def __init__(self, device: str, options: dict[str, Any], *, start_timeout_s: float = START_TIMEOUT_S) -> None:
        self.device = device
        self._options = options
        self._start_timeout_s = start_timeout_s
        self._actor: Any = None
        self._node_id = ""
        self.pid: int | None = None
        """Process id of the actor on its node."""

    @property
    def is_started(self) -> bool:
        # that it died while idle is seen at the next evaluation, which then costs one more start and no try
        return self._actor is not None and self.pid is not None

    def start(self) -> None:
        """Raises HarnessError (no free place, no judge) or UserError (passwright cannot be imported there)."""
        self._actor = ray.remote(judge_actor_class()).options(**self._options).remote(self.device)
        try:
            about = ray.get(self._actor.start.remote(WIRE_VERSION), timeout=self._start_timeout_s)
        except GetTimeoutError:
            self.kill()
            wanted = {name: self._options[name] for name in ("num_gpus", "num_cpus") if self._options.get(name)}
            raise HarnessError(
                f"no place for {wanted} on the Ray cluster within {self._start_timeout_s:.0f} s; see `ray status`"
            ) from None
        except RayError as error:
            self.kill()
            raise HarnessError(f"a judge did not start on the Ray cluster: {_first_line(error)}") from None
        if "error" in about:
            self.kill()
            raise (UserError if about["kind"] == "UserError" else HarnessError)(about["error"])
        self._node_id, self.pid = about["node_id"], about["pid"]
        log.info("judge %s for %s on node %s", self.pid, self.device, about["host"])

    def evaluate(
        self,
        subject: Candidate | str,
        task: Task,
        protocol: EvaluationProtocol,
        *,
        seed: int,
        progress: Progress | None = None,
    ) -> Verdict:
        """See pool_records.Judge. progress is told once: the stages stay on the other side."""
        if not self.is_started or not self._answers():
            self.kill()
            self.start()
        if progress:
            progress(f"on the Ray cluster, {task.task_id}")
        request = EvaluationRequest.of(subject, task, protocol, seed).model_dump_json()
        timeout_s = protocol.task_timeout_s + protocol.graph_timeout_s + ANSWER_GRACE_S
        node_id = self._node_id
        try:
            answer = ray.get(self._actor.evaluate.remote(request), timeout=timeout_s)
        except (RayActorError, OutOfMemoryError) as error:
            self.kill()
            # a connection that breaks comes before the news of the lost node
            if _is_node_lost(node_id, wait_s=NODE_LOSS_WAIT_S if isinstance(error, ActorUnavailableError) else 0.0):
                raise MachineLostError(f"node {node_id[:12]} of the Ray cluster was lost") from None
            raise JudgeError(f"the judge's actor was lost: {_first_line(error)}") from None
        except RayError as error:
            self.kill()
            raise HarnessError(f"the judge's actor gave no answer: {_first_line(error)}") from None
        return verdict_of(json.loads(answer))

    def interrupt(self) -> None:
        """End the actor; its judge sees the closed channel and goes too."""
        actor = self._actor
        if actor is not None:
            with contextlib.suppress(Exception):  # a cluster that is gone has ended it already
                ray.kill(actor)

    def kill(self) -> None:
        self.interrupt()
        self._actor, self.pid = None, None

    def close(self) -> None:
        """Let the judge end its children and go."""
        if self._actor is not None and self.pid is not None:
            with contextlib.suppress(Exception):
                ray.get(self._actor.stop.remote(), timeout=10)
        self.kill()

    def _answers(self) -> bool:
        """Whether an idle actor is still there: its loss between evaluations is nobody's failure."""
        try:
            ray.get(self._actor.ping.remote(), timeout=30)
        except RayError:
            return False
        return True


class RayExecutor(JudgePool):
    """Judges on a Ray cluster. A context manager; same results and the same retries as LocalExecutor."""

    def __init__(
        self,
        address: str | None = "auto",
        *,
        device: str = "cuda",
        num_actors: int | None = None,
        num_cpus: float = 1.0,
        num_gpus: float | None = None,
        runtime_env: dict[str, Any] | None = None,
        progress: Progress | None = None,
        max_waiting: int = DEFAULT_MAX_WAITING,
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        """Connect, and start actors as they are needed.

        address: "auto" finds the cluster of this machine (or RAY_ADDRESS), "host:port" or "ray://..." names one, and
        only "local" starts one. device: "cuda" or "cpu". num_actors: default one for each GPU, or one on CPU.
        num_cpus, num_gpus: of each actor; num_gpus=0.5 puts two judges on a GPU, so that one compiles while the other
        times. runtime_env: Ray's, for workers that have no passwright installed. Raises UserError: no cluster, no GPU.
        """
        if device not in ("cpu", "cuda"):
            raise UserError(f"device {device}: a judge on Ray has a GPU of its own; give cuda or cpu")
        self.device = device
        self._connected_here = connect(address)
        gpus = (1.0 if device == "cuda" else 0.0) if num_gpus is None else num_gpus
        count = num_actors or _default_count(device, gpus)
        options = {
            "num_cpus": num_cpus,
            "num_gpus": gpus,
            "runtime_env": runtime_env,
            # a lost actor is replaced by the pool, which knows what it was doing
            "max_restarts": 0,
            "max_task_retries": 0,
        }
        judge_device = "cuda:0" if device == "cuda" else "cpu"  # Ray shows an actor its own GPU only
        judges = [RayJudge(judge_device, options, start_timeout_s=start_timeout_s) for _ in range(count)]
        super().__init__(judges, progress=progress, max_waiting=max_waiting)

    def close(self, *, grace_s: float = CLOSE_GRACE_S) -> None:
        """As JudgePool.close; leaves the cluster if this executor entered it."""
        super().close(grace_s=grace_s)
        if self._connected_here:
            self._connected_here = False
            ray.shutdown()


def connect(address: str | None) -> bool:
    """Enter the cluster; False if this process is in one already. Raises UserError with the cure."""
    if ray.is_initialized():
        return False
    own: dict[str, Any] = {}
    if address == "local":
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a cluster that we start reports to nobody
        own = {"include_dashboard": False, "object_store_memory": LOCAL_STORE_BYTES}
    try:
        ray.init(address=address or "auto", log_to_driver=False, **own)
    except AuthenticationError as error:
        raise UserError(
            f"--address {address}: the Ray cluster asks for its token ({_first_line(error)[:120]}); set up Ray's token "
            "authentication for this process too (docs/executors.md)"
        ) from None
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise UserError(
            f"--address {address}: no Ray cluster there ({_first_line(error)}); start one with `ray start --head`, "
            "name it as host:port or give `local` for one on this machine"
        ) from None
    return True


def _default_count(device: str, num_gpus: float) -> int:
    if device == "cpu":
        return 1
    total = ray.cluster_resources().get("GPU", 0)
    if total < num_gpus or num_gpus <= 0:
        raise UserError(
            f"the Ray cluster has {total:.0f} GPUs; add a node with one (`ray start --address ...`) or use --device cpu"
        )
    return int(total / num_gpus)


def _is_node_lost(node_id: str, *, wait_s: float) -> bool:
    """Whether the node is gone, or goes within wait_s."""
    deadline = time.monotonic() + wait_s
    with contextlib.suppress(RayError, RuntimeError):
        while len(nodes := ray.nodes()) > 1:  # the head's loss is the loss of the cluster
            if not any(node["NodeID"] == node_id and node["Alive"] for node in nodes):
                return True
            if time.monotonic() > deadline:
                break
            time.sleep(0.5)
    return False


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
