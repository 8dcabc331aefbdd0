"""An endpoint that speaks OpenAI's chat completions and plays a teacher by rote, in a process of its own.

Its answers depend on the request alone: on the seed and on how many answers the conversation has. Every --every-th one
calls pass_evaluator, the others write a file; after --turns answers it stops. One process, one event loop. It prints
its address, and with --log writes a line a request before it answers. It serves measurements and tests of the
collector; it is no model.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO, Any

from eval_harness.candidate import MANIFEST_FILE

RULE_FILE = "Fuse.py"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--latency", type=float, default=1.0, metavar="S", help="before each answer; default: 1")
    parser.add_argument("--jitter", type=float, default=0.0, metavar="SHARE", help="of the latency, either way")
    parser.add_argument("--turns", type=int, default=9, metavar="N", help="answers with a call; default: 9")
    parser.add_argument("--every", type=int, default=3, metavar="N", help="an evaluation every so many; default: 3")
    parser.add_argument("--chars", type=int, default=4_000, metavar="N", help="length of each file; default: 4000")
    parser.add_argument("--log", type=Path, metavar="FILE", help="append a line a request")
    args = parser.parse_args()
    with args.log.open("a") if args.log else contextlib.nullcontext() as log:
        asyncio.run(_serve(args, log))


def answer(seed: int, num_answers: int, *, turns: int, every: int, chars: int) -> dict[str, Any]:
    """The assistant message after so many answers: text, calls and reasoning, in OpenAI's form."""
    turn = num_answers + 1
    if turn > turns:
        return {"role": "assistant", "content": "Done."}
    reasoning = f"Turn {turn} of an attempt with seed {seed}."
    if turn % every == 0:
        calls: list[tuple[str, dict[str, str]]] = [("pass_evaluator", {})]
    else:
        # a speed that a reader of the file finds again, different for every attempt and turn
        speed = 1 + ((seed * 31 + turn * 7) % 100) / 100
        text = f"# as={speed:.2f}\n# attempt {seed} turn {turn}\n".ljust(chars, "#")
        calls = [("file_editor", {"command": "create", "path": f"pass_dir/{RULE_FILE}", "file_text": text})]
        if turn == 1:
            manifest = {"command": "create", "path": f"pass_dir/{MANIFEST_FILE}", "file_text": '["Fuse"]'}
            calls.insert(0, ("file_editor", manifest))
    return {
        "role": "assistant",
        "content": "",
        "reasoning_content": reasoning,
        "tool_calls": [
            {
                "index": index,
                "id": f"call_{turn}_{index}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for index, (name, arguments) in enumerate(calls)
        ],
    }


async def _serve(args: argparse.Namespace, log: IO[str] | None) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            async for request in _requests(reader):
                await _answer(args, request, writer, log)
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, backlog=1024)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await stop.wait()
    server.close()
    sys.exit(0)


async def _requests(reader: asyncio.StreamReader) -> AsyncIterator[dict[str, Any]]:
    """The bodies of the requests of one connection, which is kept open."""
    while head := await reader.readuntil(b"\r\n\r\n"):
        headers = dict(line.split(": ", 1) for line in head.decode("latin-1").lower().split("\r\n")[1:] if ": " in line)
        yield json.loads(await reader.readexactly(int(headers.get("content-length", 0))) or b"{}")


async def _answer(
    args: argparse.Namespace, request: dict[str, Any], writer: asyncio.StreamWriter, log: IO[str] | None
) -> None:
    seed, messages = int(request.get("seed") or 0), request["messages"]
    num_answers = sum(message["role"] == "assistant" for message in messages)
    if log is not None:
        log.write(json.dumps({"seed": seed, "turn": num_answers + 1}) + "\n")
        log.flush()
    spread = random.Random(f"{seed} {num_answers}").uniform(-1, 1) * args.jitter
    await asyncio.sleep(args.latency * (1 + spread))
    message = answer(seed, num_answers, turns=args.turns, every=args.every, chars=args.chars)
    finish = "tool_calls" if message.get("tool_calls") else "stop"
    size = sum(len(str(each.get("content") or "")) for each in messages)
    written = len(json.dumps(message))
    usage = {"prompt_tokens": size // 4, "completion_tokens": written // 4, "total_tokens": (size + written) // 4}
    common = {"id": f"chatcmpl-{seed}-{num_answers}", "created": 0, "model": request.get("model", "stub")}
    if request.get("stream"):
        chunk = common | {"object": "chat.completion.chunk"}
        events = [
            chunk | {"choices": [{"index": 0, "delta": message, "finish_reason": None}]},
            chunk | {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]},
            chunk | {"choices": [], "usage": usage},
        ]
        body = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
        kind = "text/event-stream"
    else:
        choice = {"index": 0, "message": message, "finish_reason": finish}
        body, kind = (
            json.dumps(common | {"object": "chat.completion", "choices": [choice], "usage": usage}),
            ("application/json"),
        )
    data = body.encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n\r\n"
    writer.write(head.encode() + data)
    await writer.drain()


if __name__ == "__main__":
    main()
