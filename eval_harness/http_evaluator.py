"""HttpEvaluator: an Evaluator for whoever cannot hold a GPU: evaluations are done by the service of serving.py.

Loads without torch and needs no extra. The service retries failures of judges itself; here only what lies between is
tried again: connections that fail, and a full queue.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import random
import socket
import ssl
import threading
import time
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any, Self
from urllib.parse import urlsplit

from data.task import Task
from eval_harness.candidate import Candidate
from eval_harness.errors import HarnessError, UserError
from eval_harness.presets import EvaluationProtocol
from eval_harness.verdict import Verdict
from eval_harness.wire import WIRE_VERSION, EvaluationRequest, verdict_of

log = logging.getLogger(__name__)

_BACK_OFF_S = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
_UNAVAILABLE = (502, 503, 504)
"""Statuses that say nothing about the request: the service, or a proxy before it, cannot take it now."""


class _Unavailable(Exception):
    """Not now. retry_after_s: what the service asked for."""

    def __init__(self, reason: str, retry_after_s: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after_s = retry_after_s


class HttpEvaluator:
    """Evaluations by a service at a URL. Thread-safe; a context manager."""

    def __init__(
        self,
        url: str,
        *,
        max_in_flight: int = 32,
        timeout_s: float = 3600.0,
        patience_s: float = 3600.0,
        connect_timeout_s: float = 30.0,
        max_failures: int = 8,
    ) -> None:
        """max_in_flight: requests at a time; further ones wait here. timeout_s: for one answer, waiting in the
        service's queue included. patience_s: how long a full queue is asked again. max_failures: connections in a row
        that may fail. Raises UserError if no service answers at the URL.
        """
        parts = urlsplit(url if "//" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UserError(f"--address {url}: not a URL; give the service's, such as http://host:8000")
        self.url = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        self._host, self._port = parts.hostname, parts.port
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._path = parts.path.rstrip("/")
        self._timeout_s, self._patience_s = timeout_s, patience_s
        self._connect_timeout_s, self._max_failures = connect_timeout_s, max_failures
        self._closed = threading.Event()
        self._mutex = threading.Lock()
        self._connections: set[http.client.HTTPConnection] = set()
        self._pool = ThreadPoolExecutor(max_in_flight, thread_name_prefix="http-evaluation")
        self.device: str = self._service()["device"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def submit(
        self, candidate: Candidate | str, task: Task, *, protocol: EvaluationProtocol, seed: int | None = None
    ) -> Future[Verdict]:
        """See Evaluator. A mistake in the request surfaces as UserError or MalformedGraphError from the future."""
        if self._closed.is_set():
            raise RuntimeError("the evaluator is closed")
        return self._pool.submit(self._evaluate, EvaluationRequest.of(candidate, task, protocol, seed))

    def health(self) -> dict[str, Any]:
        """What the service says of itself. Raises HarnessError if it does not answer."""
        try:
            _, answer = self._exchange("GET", "/health", None, timeout_s=self._connect_timeout_s)
        except _Unavailable as error:
            raise HarnessError(f"{self.url}: {error}") from None
        return answer

    def close(self) -> None:
        """Cancel what waits and leave what runs: the service ends an evaluation whose client has gone."""
        self._closed.set()
        self._pool.shutdown(wait=False, cancel_futures=True)
        with self._mutex:
            for connection in self._connections:
                if connection.sock is not None:
                    with contextlib.suppress(OSError):
                        connection.sock.shutdown(socket.SHUT_RDWR)
        self._pool.shutdown(wait=True)

    def _service(self) -> dict[str, Any]:
        try:
            about = self.health()
        except HarnessError as error:
            raise UserError(f"--address {error}; start the service (docs/executors.md) or correct the URL") from None
        if not isinstance(about.get("device"), str) or about.get("wire_version") != WIRE_VERSION:
            raise UserError(
                f"--address {self.url}: not a Passwright service of wire version {WIRE_VERSION} "
                f"(it says {about.get('wire_version')}); correct the URL or install the same version"
            )
        return about

    def _evaluate(self, request: EvaluationRequest) -> Verdict:
        body = request.model_dump_json().encode()
        deadline = time.monotonic() + self._patience_s
        failures = 0
        while True:
            try:
                status, answer = self._exchange("POST", "/evaluate", body, timeout_s=self._timeout_s)
                break
            except _Unavailable as error:
                # a full queue is no failure: it is asked again for as long as the caller has patience
                failures = 0 if error.retry_after_s is not None else failures + 1
                if self._closed.is_set():
                    raise CancelledError from None
                if failures > self._max_failures or time.monotonic() > deadline:
                    raise HarnessError(f"{self.url}: {error}") from None
                pause_s = error.retry_after_s or _BACK_OFF_S[min(failures, len(_BACK_OFF_S)) - 1]
                log.info("%s: %s; again in about %.1f s", self.url, error, pause_s)
                if self._closed.wait(pause_s * random.uniform(0.8, 1.2)):  # many clients must not come back at once
                    raise CancelledError from None
        if "verdict" not in answer and "error" not in answer:
            raise HarnessError(f"{self.url} answered {status}: {str(answer)[:200]}")
        return verdict_of(answer)

    def _exchange(self, method: str, path: str, body: bytes | None, *, timeout_s: float) -> tuple[int, dict[str, Any]]:
        """Status and answer. Raises _Unavailable for what is worth another try."""
        connection = self._connection()
        try:
            with self._mutex:
                self._connections.add(connection)
            connection.connect()
            connection.sock.settimeout(timeout_s)
            connection.request(method, self._path + path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            text = response.read()
            status, retry_after = response.status, response.getheader("Retry-After")
        except (OSError, http.client.HTTPException) as error:
            raise _Unavailable(f"{type(error).__name__}: {error}") from None
        finally:
            with self._mutex:
                self._connections.discard(connection)
            connection.close()
        if status in _UNAVAILABLE and method == "POST":
            seconds = float(retry_after) if retry_after and retry_after.isdigit() else None
            raise _Unavailable(f"status {status}: {text[:200].decode(errors='replace')}", seconds)
        try:
            answer = json.loads(text)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            return status, {"text": text[:200].decode(errors="replace")}
        return status, answer

    def _connection(self) -> http.client.HTTPConnection:
        host, port, timeout_s = self._host, self._port, self._connect_timeout_s
        if self._tls is not None:
            return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=self._tls)
        return http.client.HTTPConnection(host, port, timeout=timeout_s)
