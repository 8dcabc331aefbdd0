"""For `passwright bench sft`: models with random weights, rows of a given length, processes that train on them."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval_harness.errors import HarnessError, UserError
from scripts.arguments import say
from scripts.benches.sft_clock import OUT_OF_MEMORY, SftResult, SftSpec
from scripts.verbs.train import launch_command

PROMPT_SHARE = 0.15
"""Of a row: what the first messages say."""
TURN_TOKENS, REPLY_TOKENS = (150, 700), (300, 1200)
"""An assistant's turn and a tool's reply, drawn between these: about a third of a row is trained, as in collections."""


@dataclass
class Outcome:
    """One worker: its result, or why there is none."""

    result: SftResult | None
    reason: str = ""


class Deadline:
    """The seconds that the whole command may take."""

    def __init__(self, max_seconds: float) -> None:
        self._end = time.monotonic() + max_seconds

    @property
    def left_s(self) -> float:
        return max(0.0, self._end - time.monotonic())


def build_model(name: str, folder: Path, *, max_positions: int, on_cuda: bool) -> Path:
    """A folder of that architecture with random weights and a tokenizer; a folder that is a model is taken as it is.

    name: of training/architectures, or a folder. Raises UserError for neither.
    """
    from training.model_shape import load_architecture

    if (Path(name) / "config.json").is_file():
        return Path(name)
    if Path(name).is_dir():
        raise UserError(f"--model {name}: no config.json, so no model; give a model's folder or an architecture's name")
    load_architecture(name)  # an unknown name is told here
    # in a process of its own: what it holds of a GPU would be missing to the sides
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_draw_model, args=(name, str(folder), max_positions, on_cuda))
    process.start()
    process.join()
    if process.exitcode:
        raise HarnessError(f"the model of bench sft could not be made (status {process.exitcode}), see above")
    return folder


def _draw_model(name: str, folder: str, max_positions: int, on_cuda: bool) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    from training.model_shape import load_architecture
    from training.student import TinyStudentConfig, train_tokenizer

    config = load_architecture(name, max_position_embeddings=max_positions)
    torch.manual_seed(0)
    with torch.device("cuda" if on_cuda else "cpu"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16 if on_cuda else torch.float32)
    model.save_pretrained(folder)
    train_tokenizer(["a row is tokens already"], TinyStudentConfig()).save_pretrained(folder)


def build_rows(folder: Path, *, length: int, num_rows: int, vocabulary: int, seed: int = 0) -> int:
    """Rows of exactly that many random tokens, of which the turns of an assistant train. Returns the trained tokens."""
    from datasets import Dataset

    draw = random.Random(seed)
    rows, trained = [], 0
    for _ in range(num_rows):
        input_ids = [draw.randrange(10, vocabulary) for _ in range(length)]
        labels = [-100] * length
        position = int(PROMPT_SHARE * length)
        while position < length:
            end = min(length, position + min(draw.randint(*TURN_TOKENS), max(1, length // 4)))
            labels[position:end] = input_ids[position:end]
            position = end + min(draw.randint(*REPLY_TOKENS), max(1, length // 4))
        trained += sum(label != -100 for label in labels)
        rows.append({"input_ids": input_ids, "labels": labels})
    shutil.rmtree(folder, ignore_errors=True)
    Dataset.from_list(rows).save_to_disk(folder)
    return trained


def run_ours(spec: SftSpec, accelerate_config: Path, deadline: Deadline, **launch: int | None) -> Outcome:
    """Our trainer, as `accelerate launch` starts it."""
    path = _write(spec)
    command = launch_command("scripts.benches.sft_ours", [str(path)], accelerate_config=accelerate_config, **launch)
    return _run(command, spec, deadline)


def run_plain(spec: SftSpec, deadline: Deadline) -> Outcome:
    """TRL's own script; where its rows a forward pass do not fit, half as many, and so on."""
    micro = spec.train_batch
    while True:
        tried = spec.model_copy(update={"micro_batch": micro})
        outcome = _run([sys.executable, "-m", "scripts.benches.sft_plain", str(_write(tried))], tried, deadline)
        if outcome.result is not None or outcome.reason != "out of memory" or micro == 1:
            return outcome
        say(f"plain TRL: {micro} rows a forward pass do not fit; {micro // 2}")
        micro //= 2


def _write(spec: SftSpec) -> Path:
    shutil.rmtree(spec.out_dir, ignore_errors=True)
    spec.out_dir.mkdir(parents=True)
    path = spec.out_dir / "spec.json"
    path.write_text(spec.model_dump_json())
    return path


def _run(command: list[str], spec: SftSpec, deadline: Deadline) -> Outcome:
    if deadline.left_s < 1:
        return Outcome(None, "no time left")
    log = spec.out_dir / "log.txt"
    with log.open("w") as stream, _group(command, stream) as process:
        try:
            status = process.wait(timeout=deadline.left_s)
        except subprocess.TimeoutExpired:
            return Outcome(None, "no time left")
    result = spec.out_dir / "result.json"
    if status == 0 and result.is_file():
        return Outcome(SftResult.model_validate_json(result.read_text()))
    text = log.read_text(errors="replace")
    if status == OUT_OF_MEMORY or "out of memory" in text or f"exitcode: {OUT_OF_MEMORY}" in text.replace(" ", ""):
        return Outcome(None, "out of memory")
    last = " | ".join(line.strip() for line in text.splitlines() if line.strip())[-600:]
    raise HarnessError(f"a worker of bench sft ended with {status}: {last} (all of it: {log}, with --keep)")


@contextmanager
def _group(command: list[str], stream: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A process group of its own: a launch has children, and none may outlive the measurement."""
    process = subprocess.Popen(
        command, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True, env=os.environ | _ENVIRONMENT
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
}
"""Of both sides alike."""
