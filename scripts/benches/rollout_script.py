"""What the rollouts of `passwright bench rollouts` say: real tool calls of drawn lengths, as the ids of a tokenizer."""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from training.generation import GenerationRequest
    from training.rollout_tokens import RolloutTokenizer
    from training.rollouts import RolloutRequest
    from trajectories.limits import AgentLimits

TASKS = "mini:train"
GROUP_SIZE = 8
_FILLER = " = # the length of an answer is drawn"


@dataclass
class RolloutScript:
    """The requests, and every answer as its token ids."""

    requests: list[RolloutRequest]
    answers: dict[str, list[list[int]]]
    """Key -> the ids of each turn."""
    tokenizer: RolloutTokenizer
    limits: AgentLimits
    texts: dict[str, list[str]]
    """Key -> the pass file that each turn writes."""
    _turns: dict[str, itertools.count[int]] = field(default_factory=dict)

    @property
    def num_turns(self) -> int:
        return self.limits.max_turns

    def num_tokens(self, key: str) -> int:
        """Generated tokens of one rollout."""
        return sum(map(len, self.answers[key]))

    def answer(self, request: GenerationRequest) -> list[int]:
        """For a ScriptedEngine: the next turn of the request's rollout; from the first again after the last."""
        turn = next(self._turns.setdefault(request.key, itertools.count()))
        return self.answers[request.key][turn % self.num_turns]


def make_script(num_rollouts: int, num_turns: int, tokens: tuple[int, int]) -> RolloutScript:
    """Each turn writes a pass with another speed in it and has it judged; so many tokens that it is in `tokens`."""
    from data.passbench import load_tasks
    from training.chat_tokens import tokenize_conversation
    from training.rollout_tokens import RolloutTokenizer
    from training.rollouts import RolloutRequest
    from training.student import TinyStudentConfig, train_tokenizer
    from trajectories.limits import AgentLimits
    from trajectories.policies.scripted import call_message
    from trajectories.prompts import render_messages
    from trajectories.tools import FILE_EDITOR, PASS_EVALUATOR, TOOLS

    tasks = load_tasks(TASKS)[: -(-num_rollouts // GROUP_SIZE)]
    texts = [
        json.dumps(TOOLS),
        _FILLER,
        *(m.content for task in tasks for m in render_messages(task, "cpu", num_turns)),
    ]
    tokenizer = RolloutTokenizer(train_tokenizer(texts, TinyStudentConfig()), TOOLS)
    random_length = random.Random(0)
    filler_length = len(tokenizer.tokenizer.tokenize(f"\\n{_FILLER}"))
    manifest = {"command": "create", "path": "pass_dir/sorted_output_pass_rule_names.json", "file_text": '["Fuse"]'}
    user = {"role": "user", "content": "x"}
    requests: list[RolloutRequest] = []
    answers: dict[str, list[list[int]]] = {}
    files: dict[str, list[str]] = {}
    for index in range(num_rollouts):
        task = tasks[index // GROUP_SIZE % len(tasks)]
        key = f"rollout-{index:03d}"
        requests.append(RolloutRequest(task, key, task.task_id, index % GROUP_SIZE, seed=index))
        answers[key], files[key] = [], []
        for turn in range(num_turns):
            wanted = random_length.randint(*tokens)
            text = f"# as=1.{index:03d}{turn}\n"
            for _ in range(wanted):  # lines of filler until the answer is long enough
                create = {"command": "create", "path": "pass_dir/Fuse.py", "file_text": text}
                calls = [(FILE_EDITOR, manifest)] if turn == 0 else []
                message = call_message(*calls, (FILE_EDITOR, create), (PASS_EVALUATOR, {}), turn=turn)
                whole = tokenize_conversation(tokenizer.tokenizer, [user, message.to_openai()], TOOLS)
                start, end = whole.turns[0]
                if end - start >= wanted:
                    break
                text += (_FILLER + "\n") * max(1, (wanted - (end - start)) // filler_length)
            answers[key].append(whole.input_ids[start:end])
            files[key].append(text)
    return RolloutScript(requests, answers, tokenizer, AgentLimits(max_turns=num_turns), files)
