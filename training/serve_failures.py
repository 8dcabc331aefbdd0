"""Why a server did not come up, read from its log: the cause and the cure, in one line."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from eval_harness.errors import HarnessError, UserError

NUM_LAST_LINES = 5
_MAX_LINE_CHARS = 200
_TAIL_BYTES = 256 * 1024
_PREFIX = re.compile(r"^(\([^)]*\)\s*)*((INFO|WARNING|ERROR|DEBUG) [\d-]+ [\d:.]+ (\[[^\]]*\])?\s*)?")
"""vLLM's: (EngineCore pid=7) ERROR 09-28 15:47:24 [core.py:718]"""


@dataclass(frozen=True)
class Cause:
    """One thing that goes wrong, and what the user does about it."""

    name: str
    pattern: re.Pattern[str]
    cure: str


CAUSES = (
    Cause(
        "port",
        re.compile(r"address already in use|Errno 98|EADDRINUSE", re.IGNORECASE),
        "another process has the port: leave server.port out, or name a free one",
    ),
    Cause(
        "out of memory",
        re.compile(
            r"out of memory|OutOfMemoryError|No available memory for the cache blocks|"
            r"Free memory on device .{0,80}less than desired|larger than the (maximum|available) .{0,60}KV cache|"
            r"KV cache is needed|needs? .{0,40}KV cache",
            re.IGNORECASE,
        ),
        "the GPU's memory does not hold it: set server.max_model_len lower, server.gpu_memory_utilization to what is "
        "free, or server.tensor_parallel higher",
    ),
    Cause(
        "chat template",
        re.compile(r"chat[_ -]?template|jinja2?\.|Template(Syntax)?Error", re.IGNORECASE),
        "the chat template was refused: set server.chat_template (auto, own, or one of training/templates)",
    ),
    Cause(
        "parser",
        re.compile(r"invalid (tool call|reasoning) parser|(tool|reasoning) parser .{0,80}not (found|registered)", re.I),
        "this vLLM has no such parser: set server.tool_call_parser or server.reasoning_parser",
    ),
    Cause(
        "adapter",
        re.compile(r"LoRA rank .{0,40}greater|max_lora_rank|lora.{0,60}not supported|No adapter found", re.IGNORECASE),
        "the adapter was refused: set server.max_lora_rank, or serve the merged student",
    ),
    Cause(
        "arguments",
        re.compile(r"unrecognized arguments|invalid choice|error: argument|required: model", re.IGNORECASE),
        "this vLLM does not know an argument: correct server.extra_args, or install a version from 0.22 to 0.31",
    ),
    Cause(
        "model",
        re.compile(
            r"not a local folder and is not a valid model identifier|Repository Not Found|"
            r"does not appear to have a file named|Can't load the configuration|Invalid repository ID|"
            r"Model architectures .{0,120}not supported",
            re.IGNORECASE,
        ),
        "the model cannot be loaded: check --model, its files and HF_TOKEN",
    ),
    Cause(
        "no GPU",
        re.compile(r"No CUDA GPUs are available|Failed to infer device type|libcuda\.so|no CUDA-capable device", re.I),
        "no usable GPU (see `passwright doctor`): check server.gpus and CUDA_VISIBLE_DEVICES, or --serve transformers",
    ),
    Cause(
        "shared memory",
        re.compile(r"No space left on device|Bus error|shm", re.IGNORECASE),
        "the disk or /dev/shm is full: make room, or give a container a larger --shm-size",
    ),
)
"""In the order in which they are looked for: a port that is taken is told before what follows from it."""


def read_log(path: Path, *, after: int = 0) -> str:
    """The end of a log, of what was written after so many bytes; empty if there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(after, path.stat().st_size - _TAIL_BYTES))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def last_lines(text: str, count: int = NUM_LAST_LINES) -> list[str]:
    """The last lines that say something, clipped."""
    lines = [_PREFIX.sub("", line).strip() for line in text.splitlines()]
    return [line[:_MAX_LINE_CHARS] for line in lines if line.strip(" ^~-=*#|")][-count:]


def find_cause(text: str) -> tuple[Cause, str] | None:
    """The first known cause among the lines that are errors, and its line; else among all lines."""
    lines = text.splitlines()
    errors = [line for line in lines if re.search(r"error|exception|fail|invalid|traceback", line, re.IGNORECASE)]
    for candidates in (errors, lines[-40:]):
        for cause in CAUSES:
            for line in candidates:
                if cause.pattern.search(line):
                    return cause, _PREFIX.sub("", line).strip()[:_MAX_LINE_CHARS]
    return None


def failure(what: str, log_path: Path, text: str | None = None) -> UserError | HarnessError:
    """The error to raise for a server that did not come up, or died. what: "ended with status 1 after 3 s"."""
    text = read_log(log_path) if text is None else text
    found = find_cause(text)
    if found is not None:
        cause, line = found
        return UserError(f"vllm serve {what} ({cause.name}: {line}); {cause.cure}; log: {log_path}")
    said = " | ".join(last_lines(text)) or "it said nothing"
    return HarnessError(f"vllm serve {what}; its last lines: {said}; log: {log_path}")
