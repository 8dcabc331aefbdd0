"""`vllm serve` as a child process: started, waited for, paused, ended with all that it started.

    VllmServer.start: a port -> the command (serve_command.py) -> the guard (serve_guard.py) -> ready; close ends it all

A failure to start is one line that says why (serve_failures.py); the log is kept. Which server an evaluation takes, and
the policies that ask it, are in served_student.py. Loads without torch.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, Protocol

from eval_harness.errors import HarnessError, UserError
from eval_harness.process_tree import kill_below
from training import serve_failures
from training.serve_command import HOST, ServeCommand, child_environment, shown

logger = logging.getLogger(__name__)

LOG_FILE = "vllm.log"
PROGRESS_S = 10.0
"""Between two lines of progress while a server loads."""
MAX_PORT_TRIES = 3
"""A free port may be taken between its choice and its use."""
_POLL_S = 0.1
_REQUEST_TIMEOUT_S = 10.0
_PAUSE_TIMEOUT_S = 120.0
_CLOSE_TIMEOUT_S = 20.0
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Through no proxy: the server is this machine's."""


class Pausable(Protocol):
    """Something that can leave a GPU alone for a while."""

    def pause(self) -> None:
        """Return when nothing of it runs on the GPU; nothing begins until resume. Raises HarnessError, UserError."""
        ...

    def resume(self) -> None: ...


class Endpoint:
    """The routes of a vLLM server that are not chat completions."""

    def __init__(self, base_url: str) -> None:
        """base_url: up to and with /v1."""
        self.base_url = base_url
        self.root = base_url.rstrip("/").removesuffix("/v1")

    def is_healthy(self) -> bool:
        return self._request("/health") is not None

    def models(self) -> list[str]:
        """Names that it serves; empty while it does not answer."""
        answer = self._request("/v1/models")
        try:
            return [str(entry["id"]) for entry in json.loads(answer or "{}").get("data", [])]
        except (ValueError, KeyError, TypeError, AttributeError):
            return []

    def pause(self) -> None:
        """Freeze what is being generated, where it is; it goes on at resume. Needs VLLM_SERVER_DEV_MODE=1 there."""
        # keep: abort would lose half an answer, and wait would let a long one go on beside the clock
        if self._request("/pause?mode=keep&clear_cache=false", method="POST", timeout_s=_PAUSE_TIMEOUT_S) is None:
            raise UserError(
                f"{self.root}: does not pause while the evaluator times; start it with VLLM_SERVER_DEV_MODE=1, or give "
                "it a GPU of its own and set server.shares_gpu=false"
            )

    def resume(self) -> None:
        if self._request("/resume", method="POST", timeout_s=_PAUSE_TIMEOUT_S) is None:
            raise HarnessError(f"{self.root}: was paused and does not go on")

    def _request(self, route: str, *, method: str = "GET", timeout_s: float = _REQUEST_TIMEOUT_S) -> str | None:
        """The body of a 200, else None."""
        request = urllib.request.Request(self.root + route, method=method, data=b"" if method == "POST" else None)
        try:
            with _DIRECT.open(request, timeout=timeout_s) as response:
                return str(response.read().decode("utf-8", "replace")) if response.status == 200 else None
        except (OSError, urllib.error.URLError, ValueError):
            return None


class VllmServer:
    """One `vllm serve` and everything below it. Not started by the constructor."""

    def __init__(
        self,
        make_command: Callable[[int], ServeCommand],
        *,
        log_path: Path,
        port: int | None = None,
        start_timeout_s: float = 1800.0,
        say: Callable[[str], None] = logger.info,
    ) -> None:
        """make_command: port -> what is started. port None: a free one. say: told a line of progress."""
        self._make_command, self._fixed_port = make_command, port
        self.log_path, self._start_timeout_s, self._say = log_path, start_timeout_s, say
        self.command: ServeCommand | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._endpoint: Endpoint | None = None
        self.started_in_s = 0.0
        self._log_start = 0

    @property
    def base_url(self) -> str:
        assert self._endpoint is not None, "not started"
        return self._endpoint.base_url

    @property
    def pid(self) -> int:
        """Of the guard, the root of all the server's processes."""
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Return when it answers. Raises UserError or HarnessError that says why it does not; nothing then runs on."""
        if self._fixed_port is not None and not is_free(self._fixed_port):
            raise UserError(f"server.port={self._fixed_port}: is in use; leave it out, or name a free one")
        for tries_left in range(MAX_PORT_TRIES - 1, -1, -1):
            port = self._fixed_port or free_port()
            try:
                return self._start(port)
            except UserError:
                found = serve_failures.find_cause(self._log_of_this_start())
                was_taken = found is not None and found[0].name == "port" and self._fixed_port is None
                if not was_taken or not tries_left:
                    raise
                self._say(f"vllm serve: port {port} was taken meanwhile; trying another")

    def pause(self) -> None:
        assert self._endpoint is not None, "not started"
        self._endpoint.pause()

    def resume(self) -> None:
        if self._endpoint is not None and self.is_alive:
            self._endpoint.resume()

    def failure(self) -> HarnessError | UserError | None:
        """Why the server is not there any more; None while it is."""
        if self._process is None or self.is_alive:
            return None
        return serve_failures.failure(
            f"died while it served (status {self._process.returncode})", self.log_path, self._log_of_this_start()
        )

    def close(self) -> None:
        """End it with all its processes; may be called twice."""
        process = self._process
        if process is None:
            return
        with contextlib.suppress(OSError):
            assert process.stdin is not None
            process.stdin.close()  # what the guard waits for
        try:
            process.wait(_CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            kill_below(process.pid)
            process.kill()
            process.wait()

    def _start(self, port: int) -> None:
        command = self.command = self._make_command(port)
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            log.write(f"$ {shown(command)}\n".encode())
            log.flush()
            self._log_start = log.tell()
            self._process = _spawn(command, log)
        self._endpoint = Endpoint(f"http://{HOST}:{port}/v1")
        self._say(f"vllm serve: {command.model} on port {port}; log: {self.log_path}")
        started = time.monotonic()
        try:
            self._wait_until_ready(started)
        except BaseException:
            self.close()
            raise
        self.started_in_s = round(time.monotonic() - started, 1)
        self._say(f"vllm serve: ready after {self.started_in_s:.0f} s")

    def _wait_until_ready(self, started: float) -> None:
        assert self._endpoint is not None and self._process is not None and self.command is not None
        said = started
        while True:
            waited = time.monotonic() - started
            if self._process.poll() is not None:
                what = f"ended with status {self._process.returncode} after {waited:.0f} s"
                raise serve_failures.failure(what, self.log_path, self._log_of_this_start())
            if self._endpoint.is_healthy():
                if self.command.model in (names := self._endpoint.models()):
                    return
                if names:
                    raise HarnessError(
                        f"vllm serve: another server answers on its port and serves {names[0]}; start again"
                    )
            if waited > self._start_timeout_s:
                said_last = " | ".join(serve_failures.last_lines(self._log_of_this_start(), 2)) or "nothing"
                raise HarnessError(
                    f"vllm serve is not ready after {waited:.0f} s (its last words: {said_last}); raise "
                    f"server.start_timeout_s, or look into {self.log_path}"
                )
            if time.monotonic() - said >= PROGRESS_S:
                said = time.monotonic()
                line = (serve_failures.last_lines(self._log_of_this_start(), 1) or ["no word yet"])[0]
                self._say(f"vllm serve: loading, {waited:.0f} s: {line}")
            time.sleep(_POLL_S)

    def _log_of_this_start(self) -> str:
        return serve_failures.read_log(self.log_path, after=self._log_start)


@contextlib.contextmanager
def running(server: VllmServer) -> Iterator[VllmServer]:
    """The server, started, and ended with all its processes whatever happens."""
    try:
        server.start()
        yield server
    finally:
        server.close()


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def is_free(port: int) -> bool:
    """Whether nobody listens on a port of this machine."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _spawn(command: ServeCommand, log: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "training.serve_guard", *command.arguments],
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=subprocess.STDOUT,
        env=child_environment(os.environ, command),
        # a group of its own: Ctrl-C at a terminal must not end it before the answers under way are stored
        start_new_session=True,
    )


def describe_server(server: VllmServer | None) -> dict[str, Any]:
    """For the run's record: the command and what it took."""
    if server is None or server.command is None:
        return {}
    return {
        "command": shown(server.command),
        "started_in_s": server.started_in_s,
        "log": str(server.log_path),
    }
