"""The peer of `passwright bench rollouts`: TRL's GRPOTrainer with environment_factory, its generation and tool loop.

What is not TRL's: the model's answers, which are the script's and take the stated time (a call of its engine returns
when the longest answer is there), and the tool, which takes as long as a judge.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scripts.benches.rollout_script import RolloutScript


class TrlTurns:
    """A script's answers in the form that TRL's tool loop reads: one call of `judge` a turn, then a last word."""

    def __init__(self, script: RolloutScript, *, step_s: float) -> None:
        self._script, self._step_s = script, step_s
        self._turn = 0

    def answer(self, tokenizer: Any, num_rows: int) -> list[list[int]]:
        """The next turn of every rollout, after the time that the longest takes."""
        keys = [request.key for request in self._script.requests]
        if num_rows != len(keys):
            raise AssertionError(f"{num_rows} of {len(keys)} rollouts go on: the tool loop did not read a call")
        if self._turn < self._script.num_turns:
            texts = [self._call(self._script.texts[key][self._turn]) for key in keys]
        else:
            texts = ["Done.<|im_end|>"] * num_rows
        self._turn += 1
        rows = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
        time.sleep(self._step_s * max(map(len, rows)))
        return rows

    @staticmethod
    def _call(text: str) -> str:
        call = json.dumps({"name": "judge", "arguments": {"file_text": text}})
        return f"<tool_call>\n{call}\n</tool_call><|im_end|>"


def run_trl_loop(script: RolloutScript, *, step_s: float, evaluation_s: float) -> float:
    """Seconds that TRL's generation with tools takes for the script's rollouts."""
    import trl
    from datasets import Dataset
    from transformers import Qwen3Config, Qwen3ForCausalLM
    from trl import GRPOConfig, GRPOTrainer

    tokenizer = script.tokenizer.tokenizer
    # TRL reads tool calls by a parser that it knows for this text
    template = (Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja").read_text(encoding="utf-8")
    tokenizer.chat_template = template
    turns = TrlTurns(script, step_s=step_s)
    judged: list[float] = []

    class Environment:
        """One attempt, as environment_factory wants it."""

        def reset(self, **_: Any) -> None:
            return None

        def judge(self, file_text: str) -> str:
            """Judge a pass.

            Args:
                file_text: The pass.
            """
            time.sleep(evaluation_s)
            judged.append(time.monotonic())
            return "CORRECT on every graph"

    class Trainer(GRPOTrainer):
        loop_s = 0.0

        def _generate(self, prompts: list[Any]) -> Any:
            began = time.monotonic()
            output = super()._generate(prompts)
            self.loop_s = time.monotonic() - began
            return output

        def _generate_single_turn(self, prompt_ids: list[Any], *_: Any, **__: Any) -> Any:
            rows = turns.answer(tokenizer, len(prompt_ids))
            return rows, [[-0.5] * len(row) for row in rows]

    num_rollouts = len(script.requests)
    config = Qwen3Config(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=1,
        num_key_value_heads=1, head_dim=16, max_position_embeddings=1 << 20, eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    prompts = [{"prompt": [{"role": "user", "content": f"Write pass {index}."}]} for index in range(num_rollouts)]
    with tempfile.TemporaryDirectory(prefix="bench-rollouts-trl-") as folder:
        trainer = Trainer(
            model=Qwen3ForCausalLM(config),
            args=GRPOConfig(
                output_dir=folder, per_device_train_batch_size=num_rollouts, num_generations=num_rollouts,
                max_completion_length=1 << 19, max_tool_calling_iterations=script.num_turns, use_cpu=True, bf16=False,
                report_to="none", disable_tqdm=True,
            ),
            reward_funcs=lambda prompts, **_: [0.0] * len(prompts),
            environment_factory=Environment,
            processing_class=tokenizer,
            train_dataset=Dataset.from_list(prompts),
        )  # fmt: skip
        trainer.model.train()
        trainer._generate_and_score_completions(prompts)
    if len(judged) != num_rollouts * script.num_turns:
        raise AssertionError(f"TRL's loop ran {len(judged)} tools, not {num_rollouts * script.num_turns}")
    return trainer.loop_s
