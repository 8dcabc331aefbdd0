"""GRPO runs with a scripted student and a canned judge, in this process or in processes of their own. Not a test.

`python -m tests.grpo_runs FOLDER [key=value ...]`, also under accelerate launch: the run of FOLDER/grpo.yaml. What a
student answers follows from the request's key, so runs that are alike make the same rollouts.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from data.passbench import write_parquet
from data.task import Task
from eval_harness.candidate import Candidate
from eval_harness.errors import JudgeError
from eval_harness.presets import EvaluationProtocol
from eval_harness.verdict import Verdict
from scripts.config_loading import load_config
from tests.canned_evaluator import CannedEvaluator, make_task
from tests.rollout_helpers import answer_ids, attempt, build_rollout_tokenizer
from training.generation import GenerationRequest, ScriptedEngine
from training.grpo_config import GrpoRunConfig
from training.rollout_tokens import RolloutTokenizer
from training.student import TinyStudentConfig

SIZES = {"num_layers": 1, "hidden_size": 32, "num_heads": 2, "num_kv_heads": 1, "intermediate_size": 32}
TRAINER = {
    "use_cpu": True, "bf16": False, "max_steps": 4, "learning_rate": 2e-3, "lr_scheduler_type": "constant",
    "save_steps": 1, "disable_tqdm": True, "seed": 3,
}  # fmt: skip


def write_run(folder: Path, **changed: Any) -> Path:
    """Student, tasks and grpo.yaml below a folder; returns the YAML's path."""
    tokenizer = build_rollout_tokenizer()
    write_student(folder / "student", tokenizer)
    write_parquet([make_task("a"), make_task("b", num_graphs=2)], folder / "train.parquet")
    write_parquet([make_task("c", num_graphs=3)], folder / "held_out.parquet")
    values = {
        "name": "scripted",
        "out": str(folder / "run"),
        "student": {"name_or_path": str(folder / "student"), "dtype": "float32"},
        "tasks": {"train": [str(folder / "train.parquet")], "held_out": [str(folder / "held_out.parquet")]},
        "groups": 2,
        "group_size": 2,
        "limits": {"max_turns": 3},
        "prompt": {"max_chars": 5000, "example": False},
        "rollout": {"max_new_tokens": 600, "max_completion_tokens": 3000, "wall_limit_s": 20.0},
        "evaluation": {"every_steps": 2, "final_protocol": None},
        "trainer": TRAINER,
    }
    path = folder / "grpo.yaml"
    path.write_text(yaml.safe_dump(values | changed))
    return path


def write_student(folder: Path, tokenizer: RolloutTokenizer) -> None:
    """A model with random weights that has the tokenizer's tokens."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    sizes = TinyStudentConfig(**SIZES)
    config = Qwen3Config(
        vocab_size=len(tokenizer.tokenizer),
        hidden_size=sizes.hidden_size,
        intermediate_size=sizes.intermediate_size,
        num_hidden_layers=sizes.num_layers,
        num_attention_heads=sizes.num_heads,
        num_key_value_heads=sizes.num_kv_heads,
        head_dim=16,
        max_position_embeddings=16_384,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.tokenizer.eos_token_id,
        pad_token_id=tokenizer.tokenizer.pad_token_id,
    )
    torch.manual_seed(0)
    Qwen3ForCausalLM(config).save_pretrained(folder)
    tokenizer.tokenizer.save_pretrained(folder)


class ScriptedStudent:
    """One or two passes and their marks by a hash of the key: uneven turns, some failures, some good passes."""

    MARKS = ("as=1.5", "as=1.1", "wrong", "as=2.0 covered=1.2")

    def __init__(self, tokenizer: RolloutTokenizer) -> None:
        self._tokenizer = tokenizer
        self._turns: defaultdict[str, int] = defaultdict(int)

    def answer(self, request: GenerationRequest) -> list[int]:
        turn = self._turns[request.key]
        self._turns[request.key] += 1
        draw = hashlib.sha256(request.key.encode()).digest()
        messages = attempt(*(self.MARKS[draw[index] % len(self.MARKS)] for index in range(1 + draw[9] % 2)))
        return answer_ids(self._tokenizer, messages[turn] if turn < len(messages) else "Done.")


@contextmanager
def scripted_engine(trainer: Any, sampling: Any) -> Iterator[ScriptedEngine]:
    """An EngineOpener."""
    tokenizer = RolloutTokenizer(trainer.processing_class, _tools())
    yield ScriptedEngine(ScriptedStudent(tokenizer).answer, max_model_len=16_384)


class FailingEvaluator(CannedEvaluator):
    """Every third evaluation fails as a judge that died does, and one never comes back."""

    def __init__(self, *, hangs_at: int = 4, fails_every: int = 3) -> None:
        super().__init__()
        self._number, self._numbers = 0, threading.Lock()
        self._hangs_at, self._fails_every = hangs_at, fails_every

    def submit(
        self, candidate: Candidate, task: Task, *, protocol: EvaluationProtocol, seed: int | None = None
    ) -> Future[Verdict]:
        with self._numbers:
            self._number += 1
            number = self._number
        if number == self._hangs_at:
            return Future()
        if number % self._fails_every == 0:
            failed: Future[Verdict] = Future()
            failed.set_exception(JudgeError("the judge died"))
            return failed
        return super().submit(candidate, task, protocol=protocol, seed=seed)


def _tools() -> list[dict[str, Any]]:
    from trajectories.tools import TOOLS

    return TOOLS


def main(argv: list[str]) -> None:
    from training.grpo import run_grpo

    folder, overrides = Path(argv[0]), argv[1:]
    config = load_config(GrpoRunConfig, folder / "grpo.yaml", overrides)
    delay_s = float(os.environ.get("CANNED_DELAY_S", "0"))
    run_grpo(config, evaluator=CannedEvaluator(delay_s=delay_s), open_engine=scripted_engine)


if __name__ == "__main__":
    main(sys.argv[1:])
