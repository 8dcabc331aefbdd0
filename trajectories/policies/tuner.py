"""TunerPolicy: an honest proposer without a language model. It writes the expert's pass and changes what can be tuned.

It answers a conversation (writes, evaluates, changes, evaluates, ...) and each kind of request of a search, and reads
all that it goes by out of the messages, as a model would: candidates with their files, plans, scores. What it can
change is tuner_sites.py's. With it, agents are compared without a network or a key; it says nothing about how good a
model is.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from data.task import Task
from trajectories.agents.requests import kind_of
from trajectories.agents.search_text import parse_files
from trajectories.policies.expert_pass import plan_pass
from trajectories.policies.scripted import call_message
from trajectories.policies.tuner_sites import FAMILIES, cross, families_of, mutate
from trajectories.policy import PolicyError
from trajectories.record import Message
from trajectories.tools import FILE_EDITOR, PASS_EVALUATOR
from trajectories.workspace import PASS_DIR

_CANDIDATE = re.compile(r"^## Candidate \d+,", re.M)
_FAMILY = re.compile(r"\[(\w+(?:\+\w+)*)\]")
_PLAN_LINE = re.compile(
    r"^ *(?P<id>\d+) \(score (?P<score>[\d.]+), (?P<status>\w+), (?P<what>[^)]*)\): (?P<text>.*)$", re.M
)
_COVERED = re.compile(r"best covered AS ([\d.]+)")
_CORRECT = re.compile(r"(\d+) of (\d+) graphs CORRECT")
_WORDS = {"tile": ("tile", "rows"), "warps": ("warps", "threads a program"), "threads": ("threads",),
          "cache": ("once", "loads")}  # fmt: skip
"""Family -> words of a recommendation that ask for it."""

Files = dict[str, str]


class TunerPolicy:
    """One attempt's proposer. It counts its answers, so an interrupted attempt begins anew."""

    is_stateless = False

    def __init__(self, cross_rate: float = 0.3, jump_rate: float = 0.2) -> None:
        """cross_rate: share of improvements that take over places of another candidate. jump_rate: share of changes of
        two places at once."""
        self.cross_rate, self.jump_rate = cross_rate, jump_rate
        self._task: Task | None = None

    def start(self, task: Task, *, attempt_index: int, seed: int, device: str) -> None:
        self._task = task
        self._rng = random.Random(f"{task.task_id}/{attempt_index}/{seed}")
        plan = plan_pass(task.graphs, device)
        self._own: Files = {path: text for path, text in plan.files.items() if text is not None}
        self._current: Files | None = None
        """In a conversation: pass_dir as it stands."""
        self._right: Files | None = None
        """In a conversation: the last folder that was correct."""
        self._seen: set[tuple[tuple[str, str], ...]] = set()

    def answer(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> Message:
        """Raises PolicyError before start."""
        if self._task is None:
            raise PolicyError("TunerPolicy: start() comes before answer()")
        last = messages[-1].content
        answers: dict[str, Callable[[str], Message | str]] = {
            "translate": self._translate,
            "improve": self._improve,
            "plans": self._plan,
            "instantiate": self._instantiate,
            "revise": self._revise,
        }
        kind = kind_of(last)
        if not kind:
            return self._converse(messages)
        if kind not in answers:  # summaries and votes need a model
            return Message(role="assistant", content="I cannot say.")
        answer = answers[kind](last[last.rfind(f"Request: {kind}") :])
        return Message(role="assistant", content=answer) if isinstance(answer, str) else answer

    def describe(self) -> dict[str, Any]:
        return {
            "kind": "tuner",
            "model": "passwright-tuner",
            "cross_rate": self.cross_rate,
            "jump_rate": self.jump_rate,
            "terms": "built in; its passes are the project's own text",
            "licence": "Apache-2.0",
        }

    # ---- a conversation

    def _converse(self, messages: Sequence[Message]) -> Message:
        if self._current is None:
            if not self._own:
                return Message(role="assistant", content="This is outside the operators that I can fuse.")
            self._current = self._noted(self._own)
            return _writes(self._current, {}, evaluate=True)
        found = _CORRECT.findall(next((m.content for m in reversed(messages) if m.role == "tool"), ""))
        before = self._current
        if found and found[-1][0] == found[-1][1]:
            self._right = before
        changed = self._changed(self._right or self._own)
        if changed is None:
            return Message(role="assistant", content="Nothing is left to change.")
        self._current = changed
        return _writes(changed, before, evaluate=True)

    # ---- requests of a search

    def _translate(self, request: str) -> Message:
        if not self._own:
            return Message(role="assistant", content="This is outside the operators that I can fuse.")
        return _writes(self._noted(self._own), {})

    def _improve(self, request: str) -> Message:
        starts = [found.start() for found in _CANDIDATE.finditer(request)]
        shown = [_files(request[start:end]) for start, end in zip(starts, [*starts[1:], None], strict=True)]
        shown = [files for files in shown if files] or ([self._own] if self._own else [])
        if not shown:
            return Message(role="assistant", content="This is outside the operators that I can fuse.")
        recommended = request[: starts[0]] if starts else request
        families = [name for name, words in _WORDS.items() if any(word in recommended for word in words)]
        parent = shown[-1] if self._rng.random() < 0.7 else self._rng.choice(shown)
        if len(shown) > 1 and self._rng.random() < self.cross_rate:
            parent = cross(parent, self._rng.choice([files for files in shown if files is not parent]), self._rng)
            if self._is_new(parent):
                return _writes(self._noted(parent), shown[-1])
        changed = self._changed(parent, families) or self._changed(parent)
        if changed is None:
            return Message(role="assistant", content="Nothing is left to change.")
        return _writes(changed, shown[-1])

    def _plan(self, request: str) -> str:
        """The pass as it is, and one plan a family of places."""
        count = int((re.search(r"Think of (\d+)", request) or ["", "4"])[1])
        plans = [{"plan": "the plain fused kernel [plain]", "score": 0.9}]
        plans += [{"plan": f"tune {FAMILIES[name]} [{name}]", "score": 0.6} for name in families_of(self._own)]
        return json.dumps(plans[:count])

    def _instantiate(self, request: str) -> Message:
        if not self._own:
            return Message(role="assistant", content="This is outside the operators that I can fuse.")
        found = _FAMILY.search(request.split("\n\n")[1] if "\n\n" in request else request)
        families = found[1].split("+") if found else []
        shown = _files(request)
        if not shown or families == ["plain"]:
            start = self._own
            if self._is_new(start):
                return _writes(self._noted(start), shown)
        else:
            start = shown
        known = [name for name in families if name in FAMILIES]
        changed = self._changed(start, known) or self._changed(self._own, known)
        return (
            Message(role="assistant", content="Nothing is left to change.")
            if changed is None
            else _writes(changed, shown)
        )

    def _revise(self, request: str) -> str:
        """Plans by what they reached; the best is refined by each other family, what brought nothing is pruned."""
        rows = [found.groupdict() for found in _PLAN_LINE.finditer(request)]
        reached = {int(row["id"]): float(best[1]) for row in rows if (best := _COVERED.search(row["what"]))}
        if not reached:
            return "[]"
        top = max(reached, key=lambda number: reached[number])
        edits: list[dict[str, Any]] = []
        texts = {int(row["id"]): row["text"] for row in rows}
        used = (_FAMILY.search(texts[top]) or ["", ""])[1].split("+")
        for name in families_of(self._own):
            tag = "+".join(sorted({*used, name} - {"plain", ""}))
            text = f"plan {top}, with {FAMILIES[name]} changed too [{tag}]"
            if not any(known.endswith(f"[{tag}]") and f"plan {top}," in known for known in texts.values()):
                edits.append({"do": "insert", "parent": top, "plan": text, "score": 0.8})
        for row in rows:
            number = int(row["id"])
            if row["status"] != "open" or number == top:
                continue
            gain = reached.get(number, 0.0) / reached[top]
            if "not tried" not in row["what"]:
                edits.append({"do": "rank", "id": number, "score": round(min(1.0, gain) * 0.7, 3)})
        return json.dumps(edits)

    # ---- what both use

    def _changed(self, files: Mapping[str, str], families: Sequence[str] = ()) -> Files | None:
        """A version that was not written before."""
        for _ in range(30):
            num_changes = 2 if self._rng.random() < self.jump_rate else 1
            changed = mutate(files, self._rng, families=families, num_changes=num_changes)
            if changed is not None and self._is_new(changed):
                return self._noted(changed)
        return None

    def _is_new(self, files: Mapping[str, str]) -> bool:
        return tuple(sorted(files.items())) not in self._seen

    def _noted(self, files: Mapping[str, str]) -> Files:
        self._seen.add(tuple(sorted(files.items())))
        return dict(files)


def _files(text: str) -> Files:
    """The last version of each file that a text shows, without pass_dir/."""
    return {path.removeprefix(f"{PASS_DIR}/"): content for path, content in parse_files(text).items()}


def _writes(files: Mapping[str, str], before: Mapping[str, str], *, evaluate: bool = False) -> Message:
    """An answer that creates what differs from what stands there."""
    calls: list[tuple[str, dict[str, Any]]] = [
        (FILE_EDITOR, {"command": "create", "path": f"{PASS_DIR}/{path}", "file_text": text})
        for path, text in files.items()
        if before.get(path) != text
    ]
    if evaluate:
        calls.append((PASS_EVALUATOR, {}))
    return call_message(*calls, content="I change what can be tuned." if before else "I write the fused pass.")
