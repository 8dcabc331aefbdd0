"""What the evaluation service accepts: its arguments, and requests that are checked before anything is queued."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from data.graph import MalformedGraphError
from data.task import Task
from eval_harness.candidate import Candidate
from eval_harness.errors import UserError
from eval_harness.judge_pool import JudgePool
from eval_harness.presets import EvaluationProtocol
from eval_harness.wire import EvaluationRequest, TaskRecord, explain

if TYPE_CHECKING:
    from fastapi import Request

_REFERENCE = re.compile(r"[A-Za-z0-9_\-]+(:[A-Za-z0-9_\-]+)?/[A-Za-z0-9_.\-]+")
"""NAME[:split]/task_id only: a path would let a client read this machine's files."""


class RequestError(Exception):
    """A request that is not accepted, and the HTTP status that says so."""

    def __init__(self, status: int, error: Exception) -> None:
        super().__init__(str(error))
        self.status, self.error = status, error


class ServiceConfig(BaseModel):
    """Arguments of the service, as key=value of `serve run` or as `args` of a Serve configuration file."""

    model_config = ConfigDict(extra="forbid")

    executor: Literal["ray", "local"] = "ray"
    """Judges as actors anywhere on the cluster, or as children of the replica."""
    device: Literal["cuda", "cpu"] = "cuda"
    num_judges: int | None = Field(default=None, ge=1)
    """ray: actors in all, default one for each GPU of the cluster. local: judges for each GPU, default 1."""
    num_gpus: float = Field(default=1.0, gt=0)
    """ray: of each actor. local: of the replica."""
    num_cpus: float = Field(default=1.0, ge=0)
    """ray: of each actor. local: of the replica."""
    max_waiting: int = Field(default=64, ge=1)
    """Evaluations that may wait; more are answered with 503."""
    max_body_mb: float = Field(default=32.0, gt=0)
    """MiB that a request may have."""
    max_task_timeout_s: float = Field(default=3600.0, gt=0)
    """The longest task_timeout_s that a request may ask for."""

    def open_executor(self) -> JudgePool:
        """The judges. Raises UserError: no GPU."""
        if self.executor == "local":
            from eval_harness.executor import LocalExecutor

            return LocalExecutor(self.device, self.num_judges or 1, max_waiting=self.max_waiting)
        from eval_harness.ray_executor import RayExecutor

        return RayExecutor(
            device=self.device,
            num_actors=self.num_judges,
            num_cpus=self.num_cpus,
            num_gpus=self.num_gpus if self.device == "cuda" else 0.0,
            max_waiting=self.max_waiting,
        )

    def replica_options(self) -> dict[str, float]:
        """What the replica itself takes from the cluster."""
        if self.executor == "ray":
            return {"num_cpus": 0, "num_gpus": 0}
        return {"num_cpus": self.num_cpus, "num_gpus": self.num_gpus if self.device == "cuda" else 0}


async def read_body(request: Request, limit: int) -> bytes:
    """The body. Raises RequestError with 413 as soon as it is longer than limit bytes."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise RequestError(413, UserError(f"the request is longer than {limit} bytes (max_body_mb)"))
    return bytes(body)


def read_request(body: bytes, config: ServiceConfig) -> tuple[Candidate | str, Task, EvaluationProtocol, int | None]:
    """What a request asks for, checked. Raises RequestError."""
    try:
        values = json.loads(body)
    except ValueError as error:
        raise RequestError(400, UserError(f"not JSON: {error}")) from None
    except RecursionError:
        raise RequestError(400, UserError("not JSON: nested too deeply")) from None
    try:
        request = EvaluationRequest.model_validate(values)
        protocol = request.evaluation_protocol()
        if protocol.task_timeout_s > config.max_task_timeout_s:
            raise UserError(f"overrides: task_timeout_s may be at most {config.max_task_timeout_s:.0f} here")
        return request.subject(), find_task(request.task), protocol, request.seed
    except ValidationError as error:
        raise RequestError(422, UserError(explain(error))) from None
    except ValueError as error:  # UserError, MalformedGraphError, MalformedTaskError, Task's own
        known = error if isinstance(error, UserError | MalformedGraphError) else UserError(str(error))
        raise RequestError(422, known) from None


def find_task(given: TaskRecord | str) -> Task:
    """The task of a request. Raises UserError or data's own refusals."""
    if isinstance(given, TaskRecord):
        return given.task()
    if not _REFERENCE.fullmatch(given):
        raise UserError(f"task {given[:80]!r}: not NAME[:split]/task_id of a bundled set; or send the whole task")
    from data.passbench import load_task

    return load_task(given)
