"""SearchAttempt: one attempt of a search: calls of policies, candidates judged side by side, limits, the record.

    request -> answer (one call) -> files -> judged -> record, kept after every step

A search asks many short questions, each with its own context, where a conversation asks one long one. Every question is
shown as [system, task + request] and stored as a user message of its turn, so `messages_as_sent` can show it again. A
resume goes through the stored answers and verdicts: a search must draw what it chooses from `rng` alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from data.task import Task
from eval_harness.candidate import Candidate, MalformedCandidateError
from eval_harness.errors import HarnessError, UserError
from eval_harness.executor import Evaluator
from eval_harness.feedback import render_feedback
from eval_harness.verdict import Verdict
from trajectories.agents import AttemptSetup
from trajectories.agents.search_text import parse_files
from trajectories.environment import AttemptCancelledError, PassEnvironment, evaluate_with_retries
from trajectories.limits import AgentLimits, exceeded_limit
from trajectories.policy import Policy, PolicyError
from trajectories.record import EvaluationRecord, Message, StopReason, ToolCall, Trajectory, storable
from trajectories.rollout import (
    RecordKeeper,
    RolloutHooks,
    add_usage,
    ask,
    came_without_reasoning,
    evaluate_best,
    new_trajectory,
)
from trajectories.tools import PASS_EVALUATOR, TOOLS, MalformedCallError, clip, edit_files, parse_arguments
from trajectories.workspace import Workspace, WorkspaceError, graph_dir

NOT_HERE = "the search judges your files after this answer; nothing to call"


class SearchEnded(Exception):
    """A limit of the attempt, or of the collection, was reached."""

    def __init__(self, reason: StopReason) -> None:
        super().__init__(reason)
        self.reason = reason


class SearchAttempt:
    """What a search works with. Not thread-safe: a search is one thread, its evaluations run beside each other."""

    def __init__(
        self,
        task: Task,
        policies: Sequence[Policy],
        evaluator: Evaluator,
        setup: AttemptSetup,
        limits: AgentLimits,
        *,
        seed: int,
        attempt_index: int,
        hooks: RolloutHooks | None,
        earlier: Trajectory | None,
        agent: Mapping[str, Any],
    ) -> None:
        """earlier: the unfinished record of this attempt, used if every policy is stateless. agent: kind, settings."""
        self.task, self.policies, self.setup, self.limits, self.seed = task, policies, setup, limits, seed
        self.hooks = hooks or RolloutHooks()
        if not all(getattr(policy, "is_stateless", False) for policy in policies):
            earlier = None
        self.environment = PassEnvironment(
            task, evaluator, protocol=setup.protocol, limits=limits, prompt=setup.prompt, cancelled=self.hooks.cancelled
        )
        self.trajectory = new_trajectory(policies[0], self.environment, attempt_index=attempt_index, seed=seed)
        self.trajectory.agent = str(agent["kind"])
        self.trajectory.agent_settings = {key: value for key, value in agent.items() if key != "kind"}
        self.state: dict[str, Any] = self.trajectory.agent_state
        """The search's own, plain data; stored with the record."""
        self._earlier = earlier
        self._recorded: dict[int, tuple[str, Message]] = {}
        self._declined_in_a_row = 0
        self._keep = RecordKeeper(self.trajectory, self.environment, self.hooks, earlier)

    # ---- the attempt as a whole

    def run(self, search: Callable[[SearchAttempt], None]) -> Trajectory:
        """Run a search to its end. Raises UserError and AttemptCancelledError only; other ends are stop reasons."""
        trajectory, environment = self.trajectory, self.environment
        try:
            for index, policy in enumerate(self.policies):
                policy.start(
                    self.task,
                    attempt_index=trajectory.attempt_index,
                    seed=self.seed + index,
                    device=environment.evaluator.device,
                )
            described = [policy.describe() for policy in self.policies]
            # readers and ledgers ask for one teacher; the others stand beside it
            trajectory.policy = described[0] if len(described) == 1 else described[0] | {"ensemble": described[1:]}
            trajectory.messages += environment.reset()
            self._recorded = self._answers_of(self._earlier)
            environment.earlier_s = self._earlier.duration_s if self._earlier is not None and self._recorded else 0.0
            stop_reason = StopReason.SUBMITTED
            try:
                search(self)
            except SearchEnded as ended:
                stop_reason = ended.reason
            self._keep()
            final = self.setup.final_protocol
            if final is not None and stop_reason is not StopReason.BUDGET_LIMIT:
                trajectory.final_verdict = evaluate_best(environment, final)
            trajectory.stop_reason = stop_reason
        except PolicyError as error:
            trajectory.stop_reason, trajectory.error = StopReason.POLICY_ERROR, storable(str(error))
        except HarnessError as error:
            trajectory.stop_reason = StopReason.HARNESS_ERROR
            trajectory.error = storable(f"{type(error).__name__}: {error}")
        self._keep()
        return trajectory

    def rng(self, *place: object) -> random.Random:
        """Random numbers of one place in the search, the same on a resume."""
        return random.Random("/".join(map(str, (self.seed, *place))))

    def keep(self) -> None:
        """Store the record as it is now."""
        self._keep(unless=bool(self._recorded))

    # ---- calls

    def write(self, request: str, *, member: int = 0, start: Mapping[str, str] | None = None) -> dict[str, str] | None:
        """The pass folder that a policy makes of `start` in one answer; None if the answer held nothing to read.

        member: which policy. Raises SearchEnded at a limit, PolicyError.
        """
        answer = self._answer(request, member, TOOLS)
        workspace = Workspace(self.task, pass_files=start)
        num_malformed = num_read = 0
        for position, call in enumerate(answer.tool_calls):
            if position < self.limits.max_calls_a_turn:
                text, malformed = self._execute(workspace, call)
            else:
                text, malformed = f"not executed: at most {self.limits.max_calls_a_turn} calls in one answer", False
            num_malformed += malformed
            num_read += not malformed
            self._append(Message(role="tool", content=text, tool_call_id=call.id, name=call.name))
        if not answer.tool_calls:  # files in the text, in the form in which the request shows them
            for path, text in parse_files(answer.content).items():
                try:
                    workspace.write(path, text)
                    num_read += 1
                except WorkspaceError as error:
                    num_malformed += 1
                    self._append(Message(role="user", content=f"error: {error}"))
        files = workspace.pass_files if num_read else {}
        self.trajectory.num_malformed_calls += num_malformed
        used, most = self.environment.used, self.limits.max_malformed_in_a_row
        has_declined = not answer.tool_calls and not num_malformed and not files
        self._declined_in_a_row = self._declined_in_a_row + 1 if has_declined else 0
        used.malformed_in_a_row = 0 if files or has_declined else used.malformed_in_a_row + 1
        self.keep()
        if used.malformed_in_a_row >= most:
            raise SearchEnded(StopReason.FORMAT_ERROR)
        if self._declined_in_a_row >= most:  # the policy has no further idea: a conversation would have ended long ago
            raise SearchEnded(StopReason.SUBMITTED)
        return files or None

    def say(self, request: str, *, member: int = 0) -> str:
        """A policy's answer in words, without tools. Raises SearchEnded at a limit, PolicyError."""
        answer = self._answer(request, member, [])
        self.keep()
        return answer.content

    @property
    def turn(self) -> int:
        """Of the last answer, 1-based."""
        return self.trajectory.num_turns

    # ---- evaluations

    def evaluate(self, folders: Sequence[tuple[Mapping[str, str], int]]) -> list[int | str]:
        """Judge pass folders side by side; for each the index of its evaluation, or why there is none.

        folders: files, and the turn that wrote them. A folder that was judged before keeps its verdict. Raises
        SearchEnded when all evaluations are used and none of these was judged, HarnessError, AttemptCancelledError.
        """
        environment = self.environment
        hashes = {record.verdict.candidate_hash: index for index, record in enumerate(environment.evaluations)}
        found: list[int | str] = []
        todo: list[tuple[Candidate, int]] = []
        room = self.evaluations_left
        for files, turn in folders:
            try:
                candidate = Candidate(dict(files))
            except MalformedCandidateError as error:
                found.append(f"cannot be evaluated: {error}")
                continue
            if candidate.candidate_hash not in hashes:
                if room is not None and len(todo) >= room:
                    found.append("no evaluations left")
                    continue
                hashes[candidate.candidate_hash] = len(environment.evaluations) + len(todo)
                todo.append((candidate, turn))
            found.append(hashes[candidate.candidate_hash])
        for (candidate, turn), verdict in zip(todo, self._verdicts(todo), strict=True):
            environment.evaluations.append(EvaluationRecord(turn=turn, verdict=verdict, files=dict(candidate.files)))
        self.trajectory.evaluations = list(environment.evaluations)  # the archive reads them, kept or not
        self.keep()
        if "no evaluations left" in found and not todo:
            raise SearchEnded(StopReason.EVALUATION_LIMIT)
        return found

    @property
    def evaluations_left(self) -> int | None:
        most = self.limits.max_evaluations
        return None if most is None else max(0, most - len(self.environment.evaluations))

    def verdict(self, index: int) -> Verdict:
        return self.environment.evaluations[index].verdict

    def feedback(self, index: int, max_chars: int) -> str:
        """An evaluation's verdict, as an agent reads it."""
        labels = {graph.name: graph_dir(place) for place, graph in enumerate(self.task.graphs)}
        return render_feedback(self.verdict(index), max_chars=max_chars, labels=labels)

    # ---- within

    def _answer(self, request: str, member: int, tools: Sequence[dict[str, Any]]) -> Message:
        self._check_limits()
        trajectory, turn = self.trajectory, self.trajectory.num_turns + 1
        recorded = self._recorded.pop(turn, None)
        if recorded is not None and recorded[0] != request:  # the search has changed since: what follows is another one
            recorded = None
            self._recorded.clear()
        trajectory.messages.append(Message(role="user", content=request, turn=turn))
        if recorded is not None:
            answer: Message | StopReason = recorded[1]
        else:
            policy = self.policies[member]
            answer = ask(policy, trajectory, self.hooks, messages=messages_as_sent(trajectory, turn), tools=tools)
        if isinstance(answer, StopReason):
            trajectory.messages.pop()
            raise SearchEnded(answer)
        trajectory.messages.append(answer)
        trajectory.num_turns += 1
        trajectory.num_without_reasoning += came_without_reasoning(answer)
        add_usage(trajectory.usage, answer.usage)
        used = self.environment.used
        used.num_turns += 1
        if answer.usage is not None:
            used.num_tokens += answer.usage.input_tokens + answer.usage.output_tokens
            used.cost_usd += answer.usage.cost_usd
        self.keep()  # an answer that was paid for survives a kill during its evaluation
        return answer

    def _check_limits(self) -> None:
        if self.hooks.cancelled():
            raise AttemptCancelledError
        verdicts = [record.verdict for record in self.environment.evaluations]
        environment = self.environment
        reason = exceeded_limit(self.limits, environment.used, verdicts, elapsed_s=environment.elapsed_s)
        if reason is not None:
            raise SearchEnded(reason)

    def _execute(self, workspace: Workspace, call: ToolCall) -> tuple[str, bool]:
        try:
            arguments = parse_arguments(call)
        except MalformedCallError as error:
            return clip(f"malformed call: {error}", self.limits.max_reply_chars, "write the call again"), True
        if call.name == PASS_EVALUATOR:
            return NOT_HERE, False
        return edit_files(workspace, arguments, max_chars=self.limits.max_reply_chars), False

    def _append(self, message: Message) -> None:
        self.trajectory.messages.append(message.model_copy(update={"turn": self.trajectory.num_turns}))

    def _verdicts(self, todo: Sequence[tuple[Candidate, int]]) -> list[Verdict]:
        known = {
            (record.turn, record.verdict.candidate_hash): record.verdict
            for record in (self._earlier.evaluations if self._earlier is not None else ())
        }

        def judge(candidate: Candidate, turn: int) -> Verdict:
            return known.get((turn, candidate.candidate_hash)) or evaluate_with_retries(
                self.environment.evaluator,
                candidate,
                self.task,
                protocol=self.environment.protocol,
                max_retries=self.limits.max_harness_retries,
                cancelled=self.hooks.cancelled,
            )

        if not todo:
            return []
        with ThreadPoolExecutor(len(todo)) as pool:
            return list(pool.map(lambda each: judge(*each), todo))

    def _answers_of(self, earlier: Trajectory | None) -> dict[int, tuple[str, Message]]:
        """Turn -> (request, answer) of the earlier record, if it asks about the same task in the same words."""
        if earlier is None or earlier.task_hash != self.trajectory.task_hash:
            return {}
        num_first = len(self.trajectory.messages)
        if earlier.messages[:num_first] != self.trajectory.messages:
            return {}
        requests = {
            message.turn: message.content for message in reversed(earlier.messages) if message.role == "user"
        }  # the first user message of a turn is its request
        return {
            message.turn: (requests.get(message.turn, ""), message)
            for message in earlier.messages
            if message.role == "assistant" and message.turn is not None
        }


def messages_as_sent(trajectory: Trajectory, turn: int) -> list[Message]:
    """What the policy was shown for one answer of a search: the system message; the task and the request as one."""
    first = [message for message in trajectory.messages if message.turn is None]
    request = next((each for each in trajectory.messages if each.turn == turn and each.role == "user"), None)
    if request is None:
        raise UserError(f"{trajectory.trajectory_id}: no request of turn {turn}")
    task = "\n\n".join([*(message.content for message in first if message.role == "user"), request.content])
    return [*(message for message in first if message.role != "user"), Message(role="user", content=task)]
