"""Alarms: the known ways in which GRPO fails, looked for in the figures of each step. No trainer, no torch.

figures of a step -> kept history (in the checkpoint) -> the alarms that are raised now, each with what to look at.

An alarm is raised when its condition begins to hold and again every `repeat_steps` while it does. `stop_on` names those
that end training.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from eval_harness.errors import UserError

STATE_VERSION = 1

RATIO = "sampling/importance_sampling_ratio/mean"
"""TRL's name for the mean probability of a token under the trainer over that under the engine."""
ENTROPY = "entropy"
"""TRL's name for the mean entropy of a generated token, in nats."""

AlarmName = Literal[
    "importance_ratio", "entropy_collapse", "violation_rate", "infrastructure", "template_drift", "dead_groups"
]


class AlarmConfig(BaseModel):
    """From where on a figure is an alarm."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    window: int = Field(default=10, ge=1)
    """Steps that are looked at together."""
    importance_ratio_min: float = Field(default=0.5, ge=0, le=1)
    """Median of the window's mean ratios; it is 1 where trainer and engine agree."""
    importance_ratio_max: float = Field(default=2.0, ge=1)
    """The same from above."""
    entropy_share_min: float = Field(default=0.2, ge=0, le=1)
    """Median entropy of the window over that of the first steps (a window of them)."""
    violation_rise: float = Field(default=0.1, ge=0)
    """Rise of the violation rate in the window above all steps before it; also beyond chance (four standard errors)."""
    infrastructure_share: float = Field(default=0.05, ge=0, le=1)
    """Rollouts of the window that ended by our fault."""
    drift_share: float = Field(default=0.0, ge=0, le=1)
    """Checked rollouts of one step that differ from their template's rendering; more is an alarm."""
    dead_share: float = Field(default=0.9, ge=0, le=1)
    """Groups of the window without signal, before resampling."""
    repeat_steps: int = Field(default=20, ge=1)
    """Steps after which an alarm that goes on is raised again."""
    stop_on: list[AlarmName] = []
    """Alarms that end training with a checkpoint. None by default: a false alarm should not cost a night."""


@dataclass(frozen=True)
class Alarm:
    """One alarm, once."""

    name: AlarmName
    step: int
    value: float
    """What was found."""
    threshold: float
    message: str
    """One line: what is wrong and what to look at."""
    stops: bool
    """AlarmConfig.stop_on names it."""


@dataclass(frozen=True)
class _Finding:
    value: float
    threshold: float
    message: str


class Alarms:
    """Keeps the history of a run's figures and says what is wrong with it."""

    def __init__(self, config: AlarmConfig | None = None) -> None:
        self.config = config or AlarmConfig()
        self._history: list[dict[str, float]] = []
        self._raised_at: dict[str, int] = {}

    def check(self, step: int, figures: Mapping[str, float]) -> list[Alarm]:
        """Note the figures of a step (those of merge_tallies and TRL's) and return what is raised by them."""
        kept = {name: float(figures[name]) for name in _NEEDED if _is_number(figures.get(name))}
        self._history = [known for known in self._history if known["step"] < step] + [{"step": float(step)} | kept]
        raised: list[Alarm] = []
        for name, look in _CHECKS.items():
            finding = look(self._history, self.config)
            if finding is None:
                self._raised_at.pop(name, None)
            elif step - self._raised_at.get(name, -self.config.repeat_steps) >= self.config.repeat_steps:
                self._raised_at[name] = step
                stops = name in self.config.stop_on
                raised.append(Alarm(name, step, finding.value, finding.threshold, finding.message, stops))
        return raised

    @property
    def active(self) -> list[str]:
        """Names of the alarms whose condition held at the last step."""
        return sorted(self._raised_at)

    def state_dict(self) -> dict[str, Any]:
        """Plain JSON: what load_state_dict takes."""
        return {"version": STATE_VERSION, "history": self._history, "raised_at": self._raised_at}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint. Raises UserError for another version."""
        if state.get("version") != STATE_VERSION:
            found = state.get("version")
            raise UserError(f"alarms of the checkpoint: version {found}, this program reads {STATE_VERSION}")
        self._history = [dict(figures) for figures in state["history"]]
        self._raised_at = {name: int(step) for name, step in state["raised_at"].items()}


def _importance_ratio(history: Sequence[Mapping[str, float]], config: AlarmConfig) -> _Finding | None:
    values = _recent(history, RATIO, config.window)
    if len(values) < min(3, config.window):  # a first step alone is no history
        return None
    median = statistics.median(values)
    low, high = config.importance_ratio_min, config.importance_ratio_max
    if low <= median <= high:
        return None
    cure = "compare the engine's and the trainer's weights, dtype, temperature and template"
    return _Finding(
        median,
        low if median < low else high,
        f"importance ratio {median:.3g} (median of {len(values)} steps; 1 is agreement): {cure}",
    )


def _entropy_collapse(history: Sequence[Mapping[str, float]], config: AlarmConfig) -> _Finding | None:
    values = [figures[ENTROPY] for figures in history if ENTROPY in figures]
    if len(values) < 2 * config.window:
        return None
    first, last = statistics.median(values[: config.window]), statistics.median(values[-config.window :])
    threshold = config.entropy_share_min * first
    if last >= threshold:
        return None
    cure = "raise the upper clipping bound or the temperature, lower the learning rate, or add KL (beta)"
    return _Finding(last, threshold, f"entropy fell from {first:.3g} to {last:.3g} nats a token: {cure}")


def _violation_rate(history: Sequence[Mapping[str, float]], config: AlarmConfig) -> _Finding | None:
    before, recent = history[: -config.window], history[-config.window :]
    violating, rollouts = _total(recent, "rollouts/num_violating"), _total(recent, "rollouts/num")
    violating_before, rollouts_before = _total(before, "rollouts/num_violating"), _total(before, "rollouts/num")
    if not rollouts or not rollouts_before:
        return None
    now, then = violating / rollouts, violating_before / rollouts_before
    pooled = (violating + violating_before) / (rollouts + rollouts_before)
    error = math.sqrt(pooled * (1 - pooled) * (1 / rollouts + 1 / rollouts_before))
    if now - then < max(config.violation_rise, 4 * error):
        return None
    cure = "look at violations/ by rule and at those trajectories; the student is learning to cheat or to err"
    message = f"violation rate {now:.1%} of the last {len(recent)} steps' rollouts, {then:.1%} before: {cure}"
    return _Finding(now, then + config.violation_rise, message)


def _infrastructure(history: Sequence[Mapping[str, float]], config: AlarmConfig) -> _Finding | None:
    recent = history[-config.window :]
    failed, rollouts = _total(recent, "rollouts/num_infrastructure"), _total(recent, "rollouts/num")
    limit = config.infrastructure_share * rollouts
    if len(recent) < config.window:  # few rollouts: beyond chance, or one bad moment at the start is an alarm
        limit += 2 * math.sqrt(limit * (1 - config.infrastructure_share))
    if failed < 2 or failed <= limit:  # one failure is an accident
        return None
    share = failed / rollouts
    cure = "look at the evaluator's log and at trajectories that ended as HARNESS_ERROR"
    message = f"{share:.1%} of the rollouts of {len(recent)} steps were lost by our own failures: {cure}"
    return _Finding(share, config.infrastructure_share, message)


def _template_drift(history: Sequence[Mapping[str, float]], config: AlarmConfig) -> _Finding | None:
    share = history[-1].get("template/drift_share", 0.0)
    if share <= config.drift_share:
        return None
    cure = "the student is trained on other text than it will be served with; compare chat_template of both"
    return _Finding(
        share, config.drift_share, f"{share:.1%} of the checked rollouts differ from their template's rendering: {cure}"
    )


def _dead_groups(history: Sequence[Mapping[str, float]], config: AlarmConfig) -> _Finding | None:
    values = _recent(history, "groups/dead_share", config.window)
    if len(values) < config.window:
        return None
    mean = sum(values) / len(values)
    if mean <= config.dead_share:
        return None
    cure = "tasks are too hard or solved: see pools/; more rollouts a group, easier tasks, or SFT first"
    return _Finding(mean, config.dead_share, f"{mean:.1%} of the groups of {len(values)} steps have no signal: {cure}")


_CHECKS: dict[AlarmName, Callable[[Sequence[Mapping[str, float]], AlarmConfig], _Finding | None]] = {
    "importance_ratio": _importance_ratio,
    "entropy_collapse": _entropy_collapse,
    "violation_rate": _violation_rate,
    "infrastructure": _infrastructure,
    "template_drift": _template_drift,
    "dead_groups": _dead_groups,
}
_NEEDED = (
    RATIO,
    ENTROPY,
    "rollouts/num",
    "rollouts/num_violating",
    "rollouts/num_infrastructure",
    "groups/dead_share",
    "template/drift_share",
)


def _recent(history: Sequence[Mapping[str, float]], name: str, window: int) -> list[float]:
    return [figures[name] for figures in history[-window:] if name in figures]


def _total(history: Sequence[Mapping[str, float]], name: str) -> float:
    return sum(figures.get(name, 0.0) for figures in history)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
