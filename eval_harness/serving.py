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

# no `from __future__ import annotations` here, and the routes use imported names only: Ray Serve copies the class by
# value where it stands, with those names of this module that exist by then
import asyncio
import json
import time
from concurrent.futures import CancelledError
from typing import Any

from fastapi import FastAPI, Request, Response
from pydantic import ValidationError
from ray import serve

from data.graph import MalformedGraphError
from eval_harness.errors import HarnessError, UserError
from eval_harness.machine import describe_versions
from eval_harness.pool_records import QueueFullError
from eval_harness.service_metrics import ServiceMetrics
from eval_harness.service_requests import RequestError, ServiceConfig, read_body, read_request
from eval_harness.wire import WIRE_VERSION, answer_of, explain

MAX_RETRY_AFTER_S = 60

api = FastAPI(title="Passwright evaluation service", docs_url=None, redoc_url=None, openapi_url=None)


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
        except RequestError as refused:
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


def app(args: dict[str, Any]) -> Any:
    """What `serve run eval_harness.serving:app key=value ...` starts. Raises UserError for a wrong argument."""
    try:
        config = ServiceConfig.model_validate(args)
    except ValidationError as error:
        raise UserError(f"serve run: {explain(error)}") from None
    service: Any = JudgeService
    return service.options(ray_actor_options=config.replica_options()).bind(config.model_dump())
