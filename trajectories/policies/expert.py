"""ExpertPolicy: a rule-based teacher that works through the agent's tools, with no network and no key.

It looks at a graph, writes a fused pass file by file, has it judged, reads the feedback, mends what that names, and
stops with an answer in words. It is not a language model: it knows a few families of operators (expert_operators.py)
and says so where a graph is outside them. Its first try is wrong on purpose in a share of the attempts
(expert_mistakes.py), so that what is learnt from it holds repairs.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
import textwrap
from collections.abc import Sequence
from typing import Any

from data.task import Task
from trajectories.policies.expert_mistakes import Mistake, choose_mistake, edits
from trajectories.policies.expert_pass import PassPlan, plan_pass
from trajectories.policy import PolicyError
from trajectories.record import Message, ToolCall
from trajectories.tools import FILE_EDITOR, PASS_EVALUATOR
from trajectories.workspace import INDEX_FILE, PASS_DIR, graph_dir

MAX_EVALUATIONS = 4
"""Then it stops, whatever the verdict: it has no further ideas."""
_OUTCOME = re.compile(
    r"\b(NO_MATCH|WRONG_VALUES|WRONG_SHAPE|WRONG_DTYPE|WRONG_STRIDE|INPUT_MUTATED|COMPILE_ERROR|RUNTIME_ERROR|TIMEOUT"
    r"|OUT_OF_MEMORY|VIOLATION|BATCH_VARIANT|UNSTABLE)\b"
)
_CORRECT = re.compile(r"(\d+) of (\d+) graphs CORRECT")
_TURNS_LEFT = re.compile(r"turns left: (\d+)")


class ExpertPolicy:
    """One attempt's teacher."""

    is_stateless = False

    def __init__(self, mistake_rate: float = 0.5) -> None:
        """mistake_rate: share of the attempts whose first try is wrong, 0 to 1."""
        self.mistake_rate = mistake_rate
        self._task: Task | None = None

    def start(self, task: Task, *, attempt_index: int, seed: int, device: str) -> None:
        digest = hashlib.sha256(f"{task.task_id}/{attempt_index}/{seed}".encode()).digest()
        self._rng = random.Random(int.from_bytes(digest[:8], "big"))
        self._task = task
        self._plan: PassPlan = plan_pass(task.graphs, device)
        self._mistake: Mistake | None = None
        if self._plan.files and self._rng.random() < self.mistake_rate:
            self._mistake = choose_mistake(self._plan, task.graphs, device, self._rng)
        self._files: dict[str, str] = {}
        """What has been written so far: path below pass_dir -> text."""
        self._queue: list[tuple[str, dict[str, Any] | None]] = []
        """Calls to come: what is said, and the editor's arguments (None: pass_evaluator)."""
        self._num_calls = 0
        self._num_evaluations = 0
        self._look()

    def answer(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> Message:
        """The next step. Raises PolicyError before start."""
        if self._task is None:
            raise PolicyError("ExpertPolicy: start() comes before answer()")
        if not self._queue:
            if not self._num_evaluations:
                self._write()
            else:
                self._read_feedback(messages)
        if not self._queue:
            return Message(role="assistant", content=self._closing_words(messages))
        return self._next_message(_turns_left(messages))

    def describe(self) -> dict[str, Any]:
        return {
            "kind": "expert",
            "model": "passwright-expert",
            "mistake_rate": self.mistake_rate,
            "terms": "built in; its passes are the project's own text",
            "licence": "Apache-2.0",
        }

    # ---- what it does

    def _look(self) -> None:
        assert self._task is not None
        if len(self._task.graphs) > 1 and self._rng.random() < 0.3:
            self._queue.append(("First I list the graphs.", {"command": "view", "path": INDEX_FILE}))
        path = f"{graph_dir(0)}/model.py"
        self._queue.append(("I read the graph before writing anything.", {"command": "view", "path": path}))

    def _write(self) -> None:
        wrong = self._mistake.wrong if self._mistake else {}
        if not self._plan.files:
            return
        self._queue_files({path: wrong.get(path, text) for path, text in self._plan.files.items()})
        self._queue_evaluation("The folder is complete; I have it judged.")

    def _queue_files(self, files: dict[str, str | None]) -> None:
        for path, text in files.items():
            if text is None or self._files.get(path) == text:
                continue
            path_given = f"{PASS_DIR}/{path}"
            changes = edits(self._files[path], text) if path in self._files else []
            for old, new in changes:
                words = self._words_for(path) if old == changes[0][0] else "The same in another place."
                arguments = {"command": "str_replace", "path": path_given, "old_str": old, "new_str": new}
                self._queue.append((words, arguments))
            if not changes:
                self._queue.append(
                    (self._words_for(path), {"command": "create", "path": path_given, "file_text": text})
                )
            self._files[path] = text

    def _queue_evaluation(self, words: str) -> None:
        self._queue.append((words, None))

    def _read_feedback(self, messages: Sequence[Message]) -> None:
        feedback = _last_verdict(messages)
        if _all_correct(feedback) or self._mistake is None or self._num_evaluations >= MAX_EVALUATIONS:
            return
        seen = set(_OUTCOME.findall(feedback))
        if not seen & set(self._mistake.outcomes):
            return
        mistake, self._mistake = self._mistake, None
        self._queue_files(dict(self._plan.files))
        arguments = self._queue[0][1]
        self._queue[0] = (f"{_complaint(feedback)} {mistake.diagnosis}", arguments)
        self._queue_evaluation("That should be it; I have it judged again.")

    # ---- what it says

    def _words_for(self, path: str) -> str:
        plan = self._plan
        if path.endswith(".json"):
            return "The manifest names the rules in order."
        if path == "half.py":
            return "numba has no half types, so a helper widens them and rounds as the dtype would."
        if path == "maths.py":
            return "Loops over math.exp do not vectorise; a polynomial does."
        if path.startswith("choice"):
            return "One pattern serves operands of several ranks; this function picks the kernel for them."
        rules = [rule for rule in plan.rules if f"{rule.name}.py" == path]
        if not rules:
            return f"One kernel for {' and '.join(plan.summary)}; the rules share it."
        return (
            f"The rule for {' '.join(rules[0].wrapper.removeprefix('fused_').split('_'))}, its pattern as in model.py."
        )

    def _closing_words(self, messages: Sequence[Message]) -> str:
        if not self._plan.files:
            reason = self._plan.refused[0] if self._plan.refused else "it holds nothing that I know how to fuse"
            return f"This is outside the operators that I can fuse ({reason}). I stop without a pass."
        feedback = _last_verdict(messages)
        found = _CORRECT.search(feedback)
        what = f"The pass fuses {' and '.join(self._plan.summary)}"
        if _all_correct(feedback):
            rest = f" Left to eager: {self._plan.refused[0]}." if self._plan.refused else ""
            return f"{what}; all {found[2] if found else ''} graphs are CORRECT.{rest} I stop here."
        count = f"{found[1]} of {found[2]} graphs are CORRECT" if found else "it could not be judged"
        return f"{what}; {count}. {_complaint(feedback)} I have no further idea and stop."

    def _next_message(self, turns_left: int | None) -> Message:
        """One call a message; the rest of the files at once when turns are short."""
        count = 1
        if turns_left is not None and turns_left <= len(self._queue) and self._queue[0][1] is not None:
            count = next((i for i, (_, arguments) in enumerate(self._queue) if arguments is None), len(self._queue))
        taken, self._queue = self._queue[:count], self._queue[count:]
        calls = []
        for _, arguments in taken:
            name = PASS_EVALUATOR if arguments is None else FILE_EDITOR
            self._num_evaluations += arguments is None
            calls.append(ToolCall(id=f"call_{self._num_calls}", name=name, arguments=json.dumps(arguments or {})))
            self._num_calls += 1
        return Message(role="assistant", content=taken[0][0], tool_calls=calls)


def _turns_left(messages: Sequence[Message]) -> int | None:
    for message in reversed(messages):
        found = _TURNS_LEFT.findall(message.content)
        if found:
            return int(found[-1])
    return None


def _last_verdict(messages: Sequence[Message]) -> str:
    """The last thing that pass_evaluator said."""
    for message in reversed(messages):
        if message.role == "tool" and (message.name == PASS_EVALUATOR or _CORRECT.search(message.content)):
            return message.content
    return ""


def _all_correct(feedback: str) -> bool:
    found = _CORRECT.search(feedback)
    return found is not None and found[1] == found[2]


def _complaint(feedback: str) -> str:
    """The evaluator's first complaint, in one sentence."""
    lines = feedback.split("\n")
    for number, line in enumerate(lines):
        found = _OUTCOME.search(line)
        if found:
            reason = lines[number + 1].strip() if number + 1 < len(lines) and lines[number + 1].startswith("  ") else ""
            reason = textwrap.shorten(reason.split(". ")[0], 240, placeholder=" ...").rstrip(".")
            return f"The evaluator reports {found[1]}" + (f": {reason}." if reason else ".")
    return "The evaluator is not content."
