"""PassEnvironment as TRL's `environment_factory`: a class with reset and tool methods, for GRPOTrainer's own loop.

TRL runs the tools of a batch one after another, rollout by rollout (asynchronous ones too: it waits for each rollout's
before it begins the next one's), so a batch of 64 rollouts waits for 64 evaluations in a row at every turn, and the
evaluator's other workers idle. Use it to try a task with a trainer that you have; to train, use scripts.train_grpo,
whose loop evaluates all rollouts at once (`passwright bench rollouts` measures it).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from eval_harness.errors import HarnessError, UserError
from training.pass_environments import Attempt, EnvironmentSetup
from trajectories.record import Message, ToolCall
from trajectories.tools import FILE_EDITOR, PASS_EVALUATOR

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

CHATML_RESPONSE: dict[str, Any] = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "reasoning_content": {"open": "<think>", "close_pattern": r"</think>\s*", "content": "text"},
        "tool_calls": {
            "open": "<tool_call>",
            "close_pattern": r"</tool_call>\s*",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close_pattern": r"<\|im_end\|>\s*", "content": "text"},
    },
}
"""How transformers reads back what our ChatML templates write (its `response_template` form)."""


class PassTools:
    """One rollout's tools. TRL calls reset with a row of its dataset, and every other public method as a tool."""

    def __init__(self, setup: EnvironmentSetup) -> None:
        self._setup = setup
        self._attempt: Attempt | None = None

    def reset(self, task_id: str, **row: Any) -> None:
        """Begin an attempt at the row's task. The prompt is the row's own, so nothing is added to it."""
        self._attempt = self._setup.start(task_id)

    def file_editor(
        self,
        command: Literal["view", "create", "str_replace", "insert", "undo"],
        path: str,
        file_text: str | None = None,
        old_str: str | None = None,
        new_str: str | None = None,
        insert_line: int | None = None,
        insert_text: str | None = None,
        view_range: list[int] | None = None,
    ) -> str:
        """
        View files and folders; create and edit files below pass_dir/.

        Args:
            command: What to do.
            path: A file or folder, such as pass_dir/Fuse.py.
            file_text: create: the whole text.
            old_str: str_replace: must occur exactly once.
            new_str: str_replace: what stands there afterwards.
            insert_line: insert: after this line, 0 for the top.
            insert_text: insert: the new lines.
            view_range: view: [first, last], -1: end.
        """
        given: dict[str, Any] = {
            "command": command,
            "path": path,
            "file_text": file_text,
            "old_str": old_str,
            "new_str": new_str,
        }
        given |= {"insert_line": insert_line, "insert_text": insert_text, "view_range": view_range}
        return self._call(FILE_EDITOR, given)

    def pass_evaluator(self) -> str:
        """
        Judge pass_dir as it is now: matching, correctness, speed.
        """
        return self._call(PASS_EVALUATOR, {})

    def get_reward(self) -> float | None:
        """The attempt's reward; None for a failure of ours. A turn is a call here: TRL does not say where an answer
        begins."""
        return None if self._attempt is None else self._attempt.reward().total

    def _call(self, name: str, arguments: dict[str, Any]) -> str:
        attempt = self._attempt
        if attempt is None:
            raise RuntimeError("a tool was called before reset")
        if attempt.has_ended:
            return "the attempt has ended; answer without a call"
        call_id = f"call_{attempt.environment.num_turns + 1}"
        given = {key: value for key, value in arguments.items() if value is not None}
        call = ToolCall(id=call_id, name=name, arguments=json.dumps(given))
        try:
            return attempt.step(Message(role="assistant", tool_calls=[call])).messages[0].content
        except HarnessError:
            # TRL would show the student our error as the tool's answer and go on
            return "the evaluation failed by no fault of yours; answer without a call"


def make_environment_factory(setup: EnvironmentSetup) -> Callable[[], PassTools]:
    """What GRPOTrainer takes as `environment_factory`; its train_dataset is Dataset.from_list(setup.rows()).

    Raises UserError for a reward with a length part: TRL does not tell an environment the tokens.
    """
    if setup.reward.weights.length:
        raise UserError("reward.weights.length: TRL does not tell an environment how many tokens it took; set it to 0")
    return lambda: PassTools(setup)


def let_trl_read_calls(tokenizer: PreTrainedTokenizerBase) -> None:
    """Give a tokenizer with one of our ChatML templates what TRL needs to find its tool calls.

    TRL knows the templates of some models by their exact text, and ours are not among them. Raises UserError for a
    template that writes no <tool_call> tags.
    """
    template = tokenizer.chat_template
    if not isinstance(template, str) or "<tool_call>" not in template or "<|im_end|>" not in template:
        raise UserError(f"{tokenizer.name_or_path}: its chat template is none of our ChatML ones; use one of those")
    tokenizer.response_template = CHATML_RESPONSE
