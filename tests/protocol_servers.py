"""Local HTTP servers that speak OpenAI's chat completions and Anthropic's messages, and fail on demand.

They know the protocols' rules (protocol_rules.py) and refuse a conversation that breaks them, as the real ones do, but
nothing of our code: the real SDK clients talk to them over sockets. What is answered comes from a list, one item a
request, or from a function of the request's body.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.protocol_answers import Answer, anthropic_events, anthropic_message, openai_events, openai_message
from tests.protocol_rules import PromptCache, anthropic_fault, openai_fault


@dataclass(frozen=True)
class Fault:
    """How a request goes wrong."""

    kind: str
    answer: Answer | None = None
    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    after: int = 3
    """Events that are sent before it happens."""
    seconds: float = 0.0


def status(http_status: int, message: str, **more: Any) -> Fault:
    """An error answer; `code`, `type` and `headers` in more."""
    headers = more.pop("headers", {})
    error = {"message": message, "type": "error", "code": None, **more}
    return Fault("status", status=http_status, body={"type": "error", "error": error}, headers=headers)


def page(code: int, html: str) -> Fault:
    return Fault("page", status=code, body=html)


def drop() -> Fault:
    return Fault("drop")


def cut(answer: Answer, after: int = 3) -> Fault:
    return Fault("cut", answer, after=after)


def end_early(answer: Answer, after: int = 3) -> Fault:
    """The stream ends in good order, before the answer does."""
    return Fault("end", answer, after=after)


def stall(answer: Answer, seconds: float, after: int = 3) -> Fault:
    return Fault("stall", answer, seconds=seconds, after=after)


def trickle(answer: Answer, seconds: float) -> Fault:
    """Comments for so long, every 20 ms, then the answer."""
    return Fault("trickle", answer, seconds=seconds)


def slow(answer: Answer, seconds: float) -> Fault:
    return Fault("slow", answer, seconds=seconds)


def stream_error(answer: Answer, error: Any, after: int = 3) -> Fault:
    return Fault("error", answer, body=error, after=after)


Answers = Sequence[Answer | Fault] | Callable[[dict[str, Any]], Answer | Fault]


class ProtocolServer:
    """Serves both protocols; remembers requests and headers. Close it."""

    def __init__(self, answers: Answers, *, models: Sequence[str] = ("m",), port: int = 0) -> None:
        """port: 0 takes a free one."""
        self.answers, self.models = answers, models
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.cache = PromptCache()
        self.mutex = threading.Lock()
        self.server = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        self.server.daemon_threads = True
        self.root = f"http://127.0.0.1:{self.server.server_port}"
        self.url = f"{self.root}/v1"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def next_answer(self, body: dict[str, Any], headers: Mapping[str, str]) -> Answer | Fault:
        with self.mutex:
            self.requests.append(body)
            self.headers.append({name.lower(): value for name, value in headers.items()})
            position = len(self.requests) - 1
        return self.answers(body) if callable(self.answers) else self.answers[position]


def _handler(owner: ProtocolServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.send_whole(200, {"object": "list", "data": [{"id": name, "object": "model"} for name in owner.models]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            is_anthropic = self.path.endswith("/messages")
            refusal = anthropic_fault(body) if is_anthropic else openai_fault(body)
            item = owner.next_answer(body, self.headers)
            if refusal is not None:
                item = status(400, refusal, type="invalid_request_error")
            if isinstance(item, Fault) and item.answer is None:
                return self.send_fault(item)
            fault = item if isinstance(item, Fault) else None
            answer = fault.answer if fault else item
            if fault and fault.kind == "slow":
                time.sleep(fault.seconds)
            if is_anthropic:
                message = anthropic_message(answer, owner.cache.usage(body))
                events = anthropic_events(message)
            else:
                message = openai_message(answer)
                with_usage = bool(body.get("stream_options", {}).get("include_usage"))
                events = openai_events(answer, with_usage=with_usage)
            try:
                if body.get("stream"):
                    self.send_events(events, fault)
                else:
                    for block in message["content"] if is_anthropic else ():
                        if block["type"] == "tool_use":
                            block["input"] = json.loads(block["input"])
                    self.send_whole(200, message, fault)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True
            return None

        def send_fault(self, fault: Fault) -> None:
            if fault.kind == "drop":
                self.close_connection = True
            elif fault.kind == "page":
                self.send_body(fault.status, fault.body.encode(), {"content-type": "text/html"})
            else:
                self.send_whole(fault.status, fault.body, headers=fault.headers)

        def send_whole(
            self, code: int, value: Any, fault: Fault | None = None, headers: Mapping[str, str] | None = None
        ) -> None:
            data = json.dumps(value).encode()
            if fault and fault.kind in ("stall", "trickle"):
                time.sleep(fault.seconds)
            is_cut = fault is not None and fault.kind in ("cut", "end")
            headers = {"content-type": "application/json", **(headers or {})}
            self.send_body(code, data, headers, num_sent=len(data) // 2 if is_cut else None)

        def send_body(self, code: int, data: bytes, headers: Mapping[str, str], num_sent: int | None = None) -> None:
            self.send_response(code)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data[:num_sent])
            self.close_connection = num_sent is not None

        def send_events(self, events: Iterator[bytes], fault: Fault | None) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            if fault and fault.kind == "trickle":
                for _ in range(int(fault.seconds / 0.02)):
                    self.send_chunk(b": still here\n\n")
                    time.sleep(0.02)
            for number, event in enumerate(events):
                if fault and number == fault.after and fault.kind in ("cut", "end", "stall", "error"):
                    if fault.kind == "error":
                        error = json.dumps({"type": "error", "error": fault.body}).encode()
                        self.send_chunk(b"event: error\ndata: " + error + b"\n\n")
                    time.sleep(fault.seconds)
                    if fault.kind == "end":
                        break
                    if fault.kind == "cut":
                        self.close_connection = True
                        return
                middle = len(event) // 2  # the network keeps no event whole
                self.send_chunk(event[:middle])
                self.send_chunk(event[middle:])
            self.send_chunk(b"")

        def send_chunk(self, data: bytes) -> None:
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            self.wfile.flush()

        def log_message(self, *arguments: Any) -> None:
            pass

    return Handler
