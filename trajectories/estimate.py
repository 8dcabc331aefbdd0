"""What a collection will take, before it is run: `passwright collect --dry-run`.

From what attempts have measured, of this collection or of another, or from assumptions that are stated and can be set.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean, stdev
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from data.task import Task
from trajectories.collect_index import AttemptRow
from trajectories.collect_prices import Price
from trajectories.progress import short_count, short_time

_CHARS_PER_TOKEN = 3.3
"""Of prompts that are mostly code."""
_Z95 = 1.96


class Assumptions(BaseModel):
    """What a dry run counts with where nothing has been measured. Guesses; a handful of attempts is better."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    turns: float = Field(default=25.0, gt=0)
    """Answers an attempt, at most limits.max_turns."""
    evaluations: float = Field(default=8.0, ge=0)
    """Verdicts an attempt that its policy sees."""
    evaluation_s: float = Field(default=3.0, ge=0)
    """Of the judge for each evaluation, whatever the task."""
    evaluation_s_per_graph: float = Field(default=1.2, ge=0)
    """On top of it; `reward` took 14.9 s for ten graphs on an H200 (docs/results.md)."""
    final_s_per_graph: float = Field(default=2.8, ge=0)
    """The same of the final evaluation; `strict` took 31.0 s for ten graphs there."""
    output_tokens_per_turn: float = Field(default=1_500.0, ge=0)
    """Reasoning included."""
    reply_tokens_per_turn: float = Field(default=500.0, ge=0)
    """What the tools answer; each turn reads all turns before it again."""
    cached_share: float | None = Field(default=None, ge=0, le=1)
    """Of the tokens read, those that the endpoint's cache serves; None: where `cached_input` has a price, all but what
    each turn adds, else none."""
    answer_s: float = Field(default=20.0, ge=0)
    """Of the teacher for each answer."""


@dataclass
class PerAttempt:
    """What one attempt takes on average."""

    turns: float
    evaluations: float
    judge_s: float
    """Of all its evaluations, the final one included."""
    input_tokens: float
    cached_tokens: float
    output_tokens: float
    usd: float
    answer_s: float
    """Of all its answers."""
    usd_error: float | None = None
    """Standard error of usd; None for assumptions."""
    judge_s_error: float | None = None


@dataclass
class Estimate:
    """What is left to do, in figures."""

    source: str
    """Where the figures come from, in words."""
    num_tasks: int
    num_planned: int
    num_open: int
    """Attempts still to be made, if no stop rule spares one."""
    per_attempt: PerAttempt
    num_at_a_time: int
    """Attempts at a time, held down by the answers that the teacher allows at a time."""
    num_judges: int
    spent_usd: float = 0.0
    prices_known: bool = True
    device: str = "cpu"
    budgets: dict[str, float] = field(default_factory=dict)
    """Budget -> what is left of it, in its unit."""
    notes: list[str] = field(default_factory=list)
    """What stands in the way of the run itself."""

    @property
    def evaluations(self) -> float:
        """The final ones included."""
        return self.num_open * (self.per_attempt.evaluations + 1)

    @property
    def judge_days(self) -> float:
        return self.num_open * self.per_attempt.judge_s / 86_400

    @property
    def usd(self) -> float:
        return self.num_open * self.per_attempt.usd

    @property
    def evaluator_s(self) -> float:
        """Wall clock if the evaluator is what the run waits for."""
        return self.num_open * self.per_attempt.judge_s / self.num_judges

    @property
    def teacher_s(self) -> float:
        """Wall clock if it is the teacher."""
        return self.num_open * self.per_attempt.answer_s / max(self.num_at_a_time, 1)

    def as_dict(self) -> dict[str, Any]:
        derived = ("evaluations", "judge_days", "usd", "evaluator_s", "teacher_s")
        return asdict(self) | {name: round(getattr(self, name), 6) for name in derived}


def assume(
    tasks: Sequence[Task], assumptions: Assumptions, *, prompt_chars: float, max_turns: int, price: Price
) -> PerAttempt:
    """What an attempt takes by assumption. prompt_chars: mean length of the first messages and the tools."""
    a = assumptions
    turns = min(a.turns, max_turns)
    graphs = fmean([len(task.graphs) for task in tasks]) if tasks else 0.0
    prompt, grown = prompt_chars / _CHARS_PER_TOKEN, a.output_tokens_per_turn + a.reply_tokens_per_turn
    read = turns * prompt + turns * (turns - 1) / 2 * grown
    written = turns * a.output_tokens_per_turn
    added = prompt + (turns - 1) * grown
    cached = a.cached_share * read if a.cached_share is not None else (read - added) * price.knows_cache
    one, final = (a.evaluation_s + graphs * each for each in (a.evaluation_s_per_graph, a.final_s_per_graph))
    return PerAttempt(
        turns=turns,
        evaluations=min(a.evaluations, turns),
        judge_s=min(a.evaluations, turns) * one + final,
        input_tokens=read,
        cached_tokens=cached,
        output_tokens=written,
        usd=price.usd(read, cached, written, cache_write_tokens=(read - cached) * price.knows_cache),
        answer_s=turns * a.answer_s,
    )


def measure(rows: Sequence[AttemptRow], price: Price | None = None) -> PerAttempt | None:
    """What finished attempts took; None without one. price: instead of what they cost (they had another teacher)."""
    rows = [row for row in rows if row.is_finished]
    if not rows:
        return None
    dollars = [
        price.usd(
            row.usage.input_tokens,
            row.usage.cached_tokens,
            row.usage.output_tokens,
            cache_write_tokens=row.usage.cache_write_tokens,
        )
        if price
        else row.usage.cost_usd
        for row in rows
    ]
    seconds = [row.evaluation_s + row.final_evaluation_s for row in rows]
    return PerAttempt(
        turns=fmean(row.num_turns for row in rows),
        evaluations=fmean(row.num_evaluations for row in rows),
        judge_s=fmean(seconds),
        input_tokens=fmean(row.usage.input_tokens for row in rows),
        cached_tokens=fmean(row.usage.cached_tokens for row in rows),
        output_tokens=fmean(row.usage.output_tokens for row in rows),
        usd=fmean(dollars),
        answer_s=fmean(row.usage.latency_s for row in rows),
        usd_error=_standard_error(dollars),
        judge_s_error=_standard_error(seconds),
    )


def render_estimate(estimate: Estimate) -> str:
    """For a reader."""
    one, num = estimate.per_attempt, estimate.num_open
    unit = "GPU-days" if estimate.device.startswith("cuda") else "judge-days"
    cached = f" ({100 * one.cached_tokens / one.input_tokens:.0f}% cached)" if one.input_tokens else ""
    read, written = short_count(num * one.input_tokens), short_count(num * one.output_tokens)
    bound, seconds = max(("evaluator", estimate.evaluator_s), ("teacher", estimate.teacher_s), key=lambda each: each[1])
    money = f"{estimate.usd:.2f} USD{_error(one.usd_error, num)}"
    if not estimate.prices_known:
        money = "money unknown (no policy.prices)"
    lines = [
        f"{estimate.num_tasks} tasks, {estimate.num_planned} attempts planned, {num} to go",
        f"by {estimate.source}",
        f"an attempt: {one.turns:.1f} turns, {one.evaluations:.1f} evaluations and a final one, {one.judge_s:.0f} s of "
        f"the judge, {short_count(one.input_tokens)} tokens read{cached}, {short_count(one.output_tokens)} written",
        f"to go: {short_count(estimate.evaluations)} evaluations, {estimate.judge_days:.2f} {unit}"
        f"{_error(one.judge_s_error, num / 86_400)}, {read} tokens read, {written} written, {money}",
        f"time: {short_time(seconds)}, for which the {bound} decides ({estimate.num_at_a_time} attempts at a time: "
        f"{short_time(estimate.teacher_s)}; {estimate.num_judges} judge{'s' * (estimate.num_judges != 1)}: "
        f"{short_time(estimate.evaluator_s)})",
    ]
    per_attempt = {
        "budget_usd": one.usd if estimate.prices_known else 0.0,
        "budget_tokens": one.input_tokens + one.output_tokens,
        "budget_hours": seconds / 3600 / num if num else 0.0,
    }
    for name, left in estimate.budgets.items():
        if per_attempt[name] and left / per_attempt[name] < num:
            lines.append(f"{name} ends the run after about {max(left, 0.0) / per_attempt[name]:.0f} of these attempts")
    lines += [f"before the run: {note}" for note in estimate.notes]
    return "\n".join(lines)


def _error(standard_error: float | None, times: float) -> str:
    """95%, if attempts are alike; the attempts at one task are more alike than that."""
    return "" if standard_error is None else f" +- {_Z95 * standard_error * times:.2g}"


def _standard_error(values: Sequence[float]) -> float | None:
    return stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
