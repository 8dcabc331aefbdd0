"""A program with the command line and routes of `vllm serve`, for tests of what starts it. Not a model, not a test.

    python stand_in_vllm.py serve MODEL --port P --served-model-name N ...

It answers by rote from the request's seed (scripts/benches/stub_endpoint.py), or writes the files of folder
$STAND_IN_PASS and has them judged. It has a worker in a session of its own, as engine processes may have.
$STAND_IN_FAULT: how it goes wrong at the start; $STAND_IN_LOG: a line a request, a pause and a resume, each with the
time; $STAND_IN_PIDS: where its own and its worker's pid are written.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PREFIX = "(EngineCore_DP0 pid=7) ERROR 09-28 15:47:24 [core.py:718] "
FAULTS = {
    "oom": PREFIX + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    "no-cache": PREFIX
    + "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`",
    "template": "jinja2.exceptions.TemplateSyntaxError: Encountered unknown tag 'generation'.",
    "parser": "KeyError: 'invalid tool call parser: hermmes (chose from { hermes,llama3_json })'",
    "model": "OSError: x/y is not a local folder and is not a valid model identifier listed on the hub",
    "unknown": "RuntimeError: the moon is in the wrong quarter",
    "port": "OSError: [Errno 98] Address already in use",
}
paused = threading.Event()
pausing = threading.Lock()
"""Over a change of `paused` and the line that tells of it: no answer's line comes between."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="vllm")
    parser.add_argument("verb", choices=["serve"])
    parser.add_argument("model")
    parser.add_argument("--host")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--served-model-name", required=True)
    parser.add_argument("--lora-modules", nargs="*", default=[])
    parser.add_argument("--max-model-len", type=int, default=10**6)
    parser.add_argument("--chat-template", type=Path)
    for flag in ("--enable-auto-tool-choice", "--enforce-eager", "--enable-lora"):
        parser.add_argument(flag, action="store_true")
    for flag in ("--seed", "--dtype", "--tensor-parallel-size", "--data-parallel-size", "--gpu-memory-utilization",
                 "--generation-config", "--tool-call-parser", "--reasoning-parser", "--max-num-seqs",
                 "--max-lora-rank", "--tokenizer"):  # fmt: skip
        parser.add_argument(flag)
    args = parser.parse_args()
    print(f"INFO 09-28 15:47:20 [api_server.py:1] loading {args.model}", flush=True)
    worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    if pids := os.environ.get("STAND_IN_PIDS"):
        Path(pids).write_text(f"{os.getpid()} {worker.pid}")
    fault = os.environ.get("STAND_IN_FAULT", "")
    once = Path(fault.partition(":")[2]) if ":" in fault else None
    if fault.startswith("port-once") and once is not None and not once.exists():
        once.touch()
        print(FAULTS["port"], flush=True)
        return 1
    if fault in FAULTS:
        print('Traceback (most recent call last):\n  File "core.py", line 1, in run', flush=True)
        print(FAULTS[fault], flush=True)
        print("RuntimeError: Engine core initialization failed. See root cause above.", flush=True)
        return 1
    if fault == "never":
        time.sleep(600)
    if fault == "deaf":  # to a request to end
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    names = [args.served_model_name, *(module.partition("=")[0] for module in args.lora_modules)]
    server = ThreadingHTTPServer((args.host, args.port), handler(names, args.max_model_len))
    server.daemon_threads = True
    server.serve_forever(0.05)
    return 0


def log(**entry: Any) -> None:
    if path := os.environ.get("STAND_IN_LOG"):
        with Path(path).open("a") as file:
            file.write(json.dumps({**entry, "at": time.monotonic()}) + "\n")


def whole_pass(num_answers: int, folder: Path) -> dict[str, Any]:
    """All files and an evaluation in the first answer, then the end."""
    if num_answers:
        return {"role": "assistant", "content": "Done."}
    calls: list[tuple[str, dict[str, str]]] = [
        ("file_editor", {"command": "create", "path": f"pass_dir/{file.name}", "file_text": file.read_text()})
        for file in sorted(folder.iterdir())
    ]
    calls.append(("pass_evaluator", {}))
    functions = [{"name": name, "arguments": json.dumps(arguments)} for name, arguments in calls]
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"index": index, "id": f"call_{index}", "type": "function", "function": function}
            for index, function in enumerate(functions)
        ],
    }


def handler(names: list[str], max_model_len: int) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path == "/v1/models":
                return self.send({"object": "list", "data": [{"id": name, "object": "model"} for name in names]})
            self.send({}, 200 if self.path == "/health" else 404)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
            route, _, query = self.path.partition("?")
            if route in ("/pause", "/resume") and os.environ.get("VLLM_SERVER_DEV_MODE") == "1":
                with pausing:
                    (paused.set if route == "/pause" else paused.clear)()
                    log(route=route, query=query)
                return self.send({"status": "ok"})
            if route != "/v1/chat/completions":
                return self.send({}, 404)
            self.complete(body)

        def complete(self, body: dict[str, Any]) -> None:
            size = sum(len(str(message.get("content") or "")) for message in body["messages"]) // 4
            wanted = body.get("max_tokens") or 1
            if size + wanted > max_model_len:
                said = (
                    f"'max_tokens' is too large: {wanted}. This model's maximum context length is {max_model_len} "
                    f"tokens and your request has {size} input tokens."
                )
                return self.send({"error": {"message": said, "type": "BadRequestError", "code": 400}}, 400)
            num_answers = sum(message["role"] == "assistant" for message in body["messages"])
            log(route="chat", seed=body.get("seed"), turn=num_answers + 1, model=body["model"], max_tokens=wanted)
            time.sleep(float(os.environ.get("STAND_IN_LATENCY", "0")))
            while True:  # frozen while paused, as mode=keep leaves it
                with pausing:
                    if not paused.is_set():
                        log(route="chat-done")
                        break
                time.sleep(0.01)
            from scripts.benches.stub_endpoint import answer  # here: its imports would slow every start

            if folder := os.environ.get("STAND_IN_PASS"):
                message = whole_pass(num_answers, Path(folder))
            else:
                message = answer(int(body.get("seed") or 0), num_answers, turns=4, every=2, chars=200)
            finish = "tool_calls" if message.get("tool_calls") else "stop"
            usage = {"prompt_tokens": size, "completion_tokens": 10, "total_tokens": size + 10}
            choice = {"index": 0, "message": message, "finish_reason": finish}
            common = {"id": "c", "created": 0, "model": body["model"], "object": "chat.completion"}
            self.send(common | {"choices": [choice], "usage": usage})

        def send(self, body: Any, status: int = 200) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *arguments: Any) -> None:
            pass

    return Handler


if __name__ == "__main__":
    sys.exit(main())
