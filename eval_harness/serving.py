"""The evaluation service: judges behind HTTP, on Ray Serve. Needs the extra `ray`.

    serve run eval_harness.serving:app device=cuda num_judges=8 max_waiting=64

    POST /evaluate   {candidate, task, protocol, overrides, seed}  -> 200 {verdict}      (schema: wire.py)
                     400 not JSON, 413 too large, 422 a mistake in the request: {error, kind}; nothing was queued
                     503 + Retry-After: the queue is full; 500 {error, kind}: our failure, already tried again
    GET  /health     judges alive, device, queue, last error; 503 if no judge can be started
    GET  /metrics    Prometheus text

It authenticates nobody and runs the code that it is sent, confined: give it a private network. One replica holds the
queue; the judges are actors on the cluster's GPUs (executor=ray) or processes beside it (executor=local).
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from concurrent.futures import CancelledError
from typing import Any, Literal

from fastapi import FastAPI, Request, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from ray import serve

from data.graph import MalformedGraphError
from data.task import Task
from eval_harness.candidate import Candidate
from eval_harness.errors import HarnessError, UserError
from eval_harness.judge_pool import JudgePool
from eval_harness.machine import describe_versions
from eval_harness.pool_records import QueueFullError
from eval_harness.presets import EvaluationProtocol
from eval_harness.service_metrics import ServiceMetrics
from eval_harness.wire import WIRE_VERSION, EvaluationRequest, TaskRecord, answer_of, explain

log = logging.getLogger(__name__)

_REFERENCE = re.compile(r"[A-Za-z0-9_\-]+(:[A-Za-z0-9_\-]+)?/[A-Za-z0-9_.\-]+")
"""NAME[:split]/task_id only: a path would let a client read this machine's files."""
MAX_RETRY_AFTER_S = 60

api = FastAPI(title="Passwright evaluation service", docs_url=None, redoc_url=None, openapi_url=None)


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


class _RequestError(Exception):
    def __init__(self, status: int, error: Exception) -> None:
        super().__init__(str(error))
        self.status, self.error = status, error


@serve.deployment(num_replicas=1, max_ongoing_requests=10_000)
@serve.ingress(api)
class JudgeService:
    """The routes. max_ongoing_requests is above max_waiting, so that a full queue is answered here and not by Serve."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self.config = ServiceConfig.model_validate(arguments)
        self.pool = self.config.open_executor()
        self.pool.start_all()
        self.metrics = ServiceMetrics()

    def __del__(self) -> None:
        if pool := getattr(self, "pool", None):
            pool.close(grace_s=0.0)

    @api.post("/evaluate")
    async def evaluate(self, request: Request) -> Response:
        started = time.monotonic()
        status, answer, headers = await self._evaluate(request)
        self.metrics.book_request(status, time.monotonic() - started)
        return Response(json.dumps(answer), status, headers, "application/json")

    @api.get("/health")
    async def health(self) -> Response:
        pool = self.pool.metrics()
        is_serving = pool.num_alive > 0 or pool.num_starting > 0 or pool.start_failures == 0
        about = {
            "status": "ok" if is_serving else "no judge can be started",
            "wire_version": WIRE_VERSION,
            "device": self.pool.device,
            "num_judges": pool.num_judges,
            "num_alive": pool.num_alive,
            "num_starting": pool.num_starting,
            "num_running": pool.num_running,
            "queue_depth": pool.queue_depth,
            "max_waiting": self.pool.max_waiting,
            "last_error": pool.last_error or None,
            "versions": describe_versions(),
        }
        return Response(json.dumps(about), 200 if is_serving else 503, None, "application/json")

    @api.get("/metrics")
    async def prometheus(self) -> Response:
        return Response(self.metrics.text(self.pool.metrics()), 200, None, self.metrics.CONTENT_TYPE)

    async def _evaluate(self, request: Request) -> tuple[int, dict[str, Any], dict[str, str]]:
        try:
            body = await read_body(request, int(self.config.max_body_mb * 2**20))
            subject, task, protocol, seed = await asyncio.to_thread(read_request, body, self.config)
            future = self.pool.submit(subject, task, protocol=protocol, seed=seed, block=False)
        except _RequestError as refused:
            return refused.status, answer_of(refused.error), {}
        except QueueFullError as error:
            return 503, answer_of(HarnessError(str(error))), {"Retry-After": str(self._retry_after_s())}
        except RuntimeError as error:  # it is being closed
            return 503, answer_of(HarnessError(str(error))), {}
        try:
            verdict = await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            # the client has gone, or the pool is being closed: nobody would read the verdict
            self.pool.cancel_running(future)
            raise
        except CancelledError:
            return 503, answer_of(HarnessError("the service is being closed")), {}
        except MalformedGraphError as error:
            return 422, answer_of(error), {}
        except UserError as error:  # of whoever set the service up, not of this client
            return 500, answer_of(HarnessError(str(error))), {}
        except Exception as error:
            return 500, answer_of(error), {}
        return 200, answer_of(verdict), {}

    def _retry_after_s(self) -> int:
        """When a place may be free: the time of one evaluation, shared by the judges."""
        return max(1, min(MAX_RETRY_AFTER_S, round(self.metrics.mean_seconds() / len(self.pool._judges))))


async def read_body(request: Request, limit: int) -> bytes:
    """The body. Raises _RequestError with 413 as soon as it is longer than limit bytes."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise _RequestError(413, UserError(f"the request is longer than {limit} bytes (max_body_mb)"))
    return bytes(body)


def read_request(body: bytes, config: ServiceConfig) -> tuple[Candidate | str, Task, EvaluationProtocol, int | None]:
    """What a request asks for, checked. Raises _RequestError."""
    try:
        values = json.loads(body)
    except ValueError as error:
        raise _RequestError(400, UserError(f"not JSON: {error}")) from None
    except RecursionError:
        raise _RequestError(400, UserError("not JSON: nested too deeply")) from None
    try:
        request = EvaluationRequest.model_validate(values)
        protocol = request.evaluation_protocol()
        if protocol.task_timeout_s > config.max_task_timeout_s:
            raise UserError(f"overrides: task_timeout_s may be at most {config.max_task_timeout_s:.0f} here")
        return request.subject(), find_task(request.task), protocol, request.seed
    except ValidationError as error:
        raise _RequestError(422, UserError(explain(error))) from None
    except ValueError as error:  # UserError, MalformedGraphError, MalformedTaskError, Task's own
        known = error if isinstance(error, UserError | MalformedGraphError) else UserError(str(error))
        raise _RequestError(422, known) from None


def find_task(given: TaskRecord | str) -> Task:
    """The task of a request. Raises UserError or data's own refusals."""
    if isinstance(given, TaskRecord):
        return given.task()
    if not _REFERENCE.fullmatch(given):
        raise UserError(f"task {given[:80]!r}: not NAME[:split]/task_id of a bundled set; or send the whole task")
    from data.passbench import load_task

    return load_task(given)


def app(args: dict[str, Any]) -> Any:
    """What `serve run eval_harness.serving:app key=value ...` starts. Raises UserError for a wrong argument."""
    try:
        config = ServiceConfig.model_validate(args)
    except ValidationError as error:
        raise UserError(f"serve run: {explain(error)}") from None
    service: Any = JudgeService
    return service.options(ray_actor_options=config.replica_options()).bind(config.model_dump())
