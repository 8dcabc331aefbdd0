"""PassEnvironment: reset, step, score for one attempt at one task; single-use. It knows no model and no training.

assistant message -> its tool calls, in order -> one tool message each, with "turns left: N" -> done, or not.

The teacher, the student and GRPO use the same one. What the policy does wrong is an observation; what we or the machine
do wrong is a HarnessError, raised out of step, never a score.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, wait
from dataclasses import dataclass, field

from data.task import Task
from eval_harness.candidate import Candidate, MalformedCandidateError
from eval_harness.errors import HarnessError
from eval_harness.executor import Evaluator
from eval_harness.feedback import render_feedback
from eval_harness.presets import EvaluationProtocol, load_protocol
from eval_harness.retries import draw_seed
from eval_harness.verdict import Verdict
from trajectories.limits import AgentLimits, Used, exceeded_limit
from trajectories.prompts import PromptConfig, render_messages
from trajectories.record import EvaluationRecord, Message, StopReason, ToolCall
from trajectories.tools import PASS_EVALUATOR, MalformedCallError, clip, edit_files, parse_arguments
from trajectories.workspace import Workspace, graph_dir

_POLL_S = 0.5
"""How often a wait for a verdict looks whether the run was cancelled."""


class AttemptCancelledError(RuntimeError):
    """The run is being closed; the attempt stays unfinished and a resume takes it up."""


@dataclass(frozen=True)
class StepResult:
    """What the environment answered to one assistant message."""

    messages: list[Message]
    """Tool messages in the order of the calls, or one user message for an answer that was cut off."""
    done: bool
    stop_reason: StopReason | None = None
    """Set when done."""
    num_malformed: int = 0
    """Calls of this turn that could not be read."""


@dataclass
class PassEnvironment:
    """One attempt at one task. Not thread-safe; different environments may run in different threads."""

    task: Task
    evaluator: Evaluator
    protocol: EvaluationProtocol = field(default_factory=lambda: load_protocol("reward"))
    limits: AgentLimits = field(default_factory=AgentLimits)
    prompt: PromptConfig = field(default_factory=PromptConfig)
    pass_files: Mapping[str, str] | None = None
    """A pass folder to start from."""
    known_evaluations: Sequence[EvaluationRecord] = ()
    """Verdicts of an interrupted attempt: the same folder is not evaluated again when its turns are gone through."""
    cancelled: Callable[[], bool] = threading.Event().is_set
    """Asked while waiting for a verdict; True raises AttemptCancelledError."""

    evaluations: list[EvaluationRecord] = field(default_factory=list, init=False)
    used: Used = field(default_factory=Used, init=False)
    stop_reason: StopReason | None = field(default=None, init=False)

    def reset(self) -> list[Message]:
        """The system and the task message. Only once: an attempt needs a fresh environment."""
        if hasattr(self, "workspace"):
            raise RuntimeError("a PassEnvironment serves one attempt; make a new one")
        self.workspace = Workspace(self.task, pass_files=self.pass_files)
        self._started = time.monotonic()
        self.earlier_s = 0.0
        """Seconds that this attempt took before it was interrupted; the limit of time counts them."""
        return render_messages(self.task, self.evaluator.device, self.limits.max_turns, self.prompt)

    def step(self, message: Message) -> StepResult:
        """Execute one assistant message. Raises HarnessError, AttemptCancelledError."""
        if self.stop_reason is not None:
            raise RuntimeError(f"the attempt has ended ({self.stop_reason}); make a new environment")
        self.used.num_turns += 1
        if message.usage is not None:
            self.used.num_tokens += message.usage.input_tokens + message.usage.output_tokens
            self.used.cost_usd += message.usage.cost_usd
        replies, num_malformed = [], 0
        for position, call in enumerate(message.tool_calls):
            if position >= self.limits.max_calls_a_turn:
                most = f"not executed: at most {self.limits.max_calls_a_turn} calls in one answer"
                replies.append(self._reply("tool", most, call))
                continue
            text, malformed = self._execute(call)
            num_malformed += malformed
            replies.append(self._reply("tool", text, call))
        was_cut = not message.tool_calls and message.finish_reason == "length"
        if was_cut:
            replies.append(self._reply("user", "Your answer was cut off at the token limit. Be shorter; call a tool."))
        if num_malformed < min(len(message.tool_calls), self.limits.max_calls_a_turn):  # of those that were executed
            self.used.malformed_in_a_row = 0
        else:
            self.used.malformed_in_a_row += 1
        if not message.tool_calls and not was_cut:
            self.stop_reason = StopReason.SUBMITTED
        else:
            verdicts = [record.verdict for record in self.evaluations]
            self.stop_reason = exceeded_limit(self.limits, self.used, verdicts, elapsed_s=self.elapsed_s)
        return StepResult(replies, self.stop_reason is not None, self.stop_reason, num_malformed)

    def evaluate_at_end(self) -> None:
        """Judge pass_dir as it was left, if it can be judged and has no verdict yet. Raises as step does.

        For attempts that end before they could ask: the verdict is nobody's observation.
        """
        self._evaluate_workspace()

    def score(self) -> int | None:
        """Index into evaluations of the best one: covered AS, then AS, then the earliest; None if none has a score."""
        return best_index([record.verdict for record in self.evaluations])

    @property
    def elapsed_s(self) -> float:
        """Seconds since reset, and those of the attempt before it was interrupted."""
        return self.earlier_s + time.monotonic() - self._started

    @property
    def num_turns(self) -> int:
        return self.used.num_turns

    @property
    def turns_left(self) -> int:
        return self.limits.max_turns - self.num_turns

    def _reply(self, role: str, text: str, call: ToolCall | None = None) -> Message:
        content = f"{text}\nturns left: {self.turns_left}"
        if call is None:
            return Message(role=role, content=content, turn=self.num_turns)
        return Message(role=role, content=content, tool_call_id=call.id, name=call.name, turn=self.num_turns)

    def _execute(self, call: ToolCall) -> tuple[str, bool]:
        """The observation, and whether the call was malformed."""
        max_chars = self.limits.max_reply_chars
        try:
            arguments = parse_arguments(call)
        except MalformedCallError as error:
            return clip(f"malformed call: {error}", max_chars, "write the call again"), True
        if call.name == PASS_EVALUATOR:
            return self._evaluate_workspace(), False
        return edit_files(self.workspace, arguments, max_chars=max_chars), False

    def _evaluate_workspace(self) -> str:
        max_evaluations, max_chars = self.limits.max_evaluations, self.limits.max_reply_chars
        try:
            candidate = self.workspace.freeze()
        except MalformedCandidateError as error:
            return clip(f"pass_dir cannot be evaluated: {error}", max_chars, "mend it first")
        for number, record in enumerate(self.evaluations, start=1):
            # a second look at one folder would only draw another lot of the timing noise
            if record.verdict.complete and record.verdict.candidate_hash == candidate.candidate_hash:
                return f"pass_dir is as at evaluation {number} (turn {record.turn}); its verdict stands. Edit first."
        if max_evaluations is not None and len(self.evaluations) >= max_evaluations:
            return f"no evaluations left: all {max_evaluations} are used"
        verdict = self._known_verdict(candidate) or self._fresh_verdict(candidate)
        self.evaluations.append(EvaluationRecord(turn=self.num_turns, verdict=verdict, files=dict(candidate.files)))
        labels = {graph.name: graph_dir(index) for index, graph in enumerate(self.task.graphs)}
        feedback = render_feedback(verdict, max_chars=max_chars, labels=labels)
        return clip(feedback, max_chars, "the rest is left out")

    def _known_verdict(self, candidate: Candidate) -> Verdict | None:
        position = len(self.evaluations)
        if position < len(self.known_evaluations):
            record = self.known_evaluations[position]
            if record.turn == self.num_turns and record.files == dict(candidate.files):
                return record.verdict
        return None

    def _fresh_verdict(self, candidate: Candidate) -> Verdict:
        return evaluate_with_retries(
            self.evaluator,
            candidate,
            self.task,
            protocol=self.protocol,
            max_retries=self.limits.max_harness_retries,
            cancelled=self.cancelled,
        )


def best_index(verdicts: Sequence[Verdict]) -> int | None:
    """Index of the best complete verdict by covered AS, then AS, then the earliest."""
    scored = [
        ((verdict.as_covered or 0.0, verdict.as_score), -index)
        for index, verdict in enumerate(verdicts)
        if verdict.complete and verdict.as_score is not None
    ]
    return -max(scored)[1] if scored else None


def evaluate_with_retries(
    evaluator: Evaluator,
    candidate: Candidate,
    task: Task,
    *,
    protocol: EvaluationProtocol,
    max_retries: int = 0,
    cancelled: Callable[[], bool] = lambda: False,
    is_fresh: bool = False,
) -> Verdict:
    """One verdict with secret seeds, asked for again after a failure of ours or an UNSTABLE one.

    is_fresh: with a seed of its own, which no cache of verdicts serves.
    Raises HarnessError after the last try; an UNSTABLE verdict of the last try is returned as it is.
    """
    for tries_left in range(max_retries, -1, -1):
        seed = draw_seed() if is_fresh else None
        future = evaluator.submit(candidate, task, protocol=protocol, seed=seed)
        while not future.done():  # wait() alone does not end for a future that was cancelled before it ran
            wait([future], timeout=_POLL_S)
            if not future.done() and cancelled():
                future.cancel()
                raise AttemptCancelledError
        try:
            verdict = future.result()
        except CancelledError:  # the evaluator is being closed
            raise AttemptCancelledError from None
        except HarnessError:
            if not tries_left:
                raise
            continue
        if verdict.complete or not tries_left:
            return verdict
    raise AssertionError("unreachable")
