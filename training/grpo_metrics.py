"""GrpoMetrics: the figures of one step, counted on each rank and added up over all of them. Plain data; no torch.

rollouts, groups, seconds -> tally (sums, gathered as plain data) -> merge_tallies -> one flat mapping name -> number.

Importance ratio, entropy, KL and clipping are TRL's own figures and go beside these; alarms (grpo_alarms.py) read both.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from eval_harness.scores import FAILURE_SCORE
from eval_harness.summary import is_batch_variant
from eval_harness.verdict import Verdict
from training.difficulty_pools import GroupResult
from training.rewards import Reward, RolloutFacts

WAITING_STAGE = "waiting for the device"
"""Of Verdict.timings: seconds in which a judge did nothing for the evaluation."""


@dataclass
class GrpoMetrics:
    """One rank's counts of one step; make a new one for the next."""

    sums: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Added up over ranks."""
    peaks: dict[str, float] = field(default_factory=dict)
    """The largest over ranks: ranks work at the same time."""

    def add_rollout(self, facts: RolloutFacts, reward: Reward) -> None:
        """One attempt of a group that is trained on, or of one that was resampled: both cost and both count."""
        self.sums["rollouts"] += 1
        self.sums["failed"] += facts.infrastructure_failure
        self.sums["evaluations"] += len(facts.verdicts)
        self.sums["turns"] += facts.num_turns
        self.sums["malformed"] += facts.num_malformed
        self.sums["tokens"] += facts.num_completion_tokens
        self._peak("turns", facts.num_turns)
        self._peak("tokens", facts.num_completion_tokens)
        self.sums[f"stop/{facts.stop_reason.value if facts.stop_reason else 'NONE'}"] += 1
        self._add_rules([verdict for _, verdict in facts.verdicts])
        self.sums["judge_s"] += sum(judge_seconds(verdict) for _, verdict in facts.verdicts)
        self.sums["incomplete"] += sum(not verdict.complete for _, verdict in facts.verdicts)
        if reward.total is not None:
            self._add_scored(facts, reward, reward.total)

    def add_group(self, result: GroupResult, *, is_resampled: bool = False) -> None:
        """One group. is_resampled: another was run in its place, and this one is not trained on."""
        self.sums["groups"] += 1
        self.sums["groups_dead"] += result.is_dead
        self.sums["groups_resampled"] += is_resampled
        self.sums["groups_spread"] += result.spread

    def add_seconds(
        self,
        *,
        rollout_s: float = 0.0,
        generation_s: float = 0.0,
        evaluation_s: float = 0.0,
        overlap_s: float = 0.0,
        idle_s: float = 0.0,
        training_s: float = 0.0,
        step_s: float = 0.0,
    ) -> None:
        """Where this rank's time went; a call adds to those before it. rollout_s is the wall time of the rollouts,
        evaluation_s that with at least one evaluation under way, overlap_s that with both, idle_s that with neither
        engine nor trainer at work."""
        mine = {"rollout": rollout_s, "generation": generation_s, "evaluation": evaluation_s, "overlap": overlap_s}
        for name, seconds in (mine | {"idle": idle_s, "training": training_s, "step": step_s}).items():
            self.peaks[f"{name}_s"] = self.peaks.get(f"{name}_s", 0.0) + seconds

    def add_template_check(self, has_drifted: bool) -> None:
        """One rollout whose text was compared with its template's rendering (template_drift.py)."""
        self.sums["template_checked"] += 1
        self.sums["template_drifted"] += has_drifted

    def tally(self) -> dict[str, Any]:
        """Plain JSON, to be gathered."""
        return {"sums": dict(self.sums), "peaks": dict(self.peaks)}

    def _add_scored(self, facts: RolloutFacts, reward: Reward, total: float) -> None:
        self.sums["scored"] += 1
        self.sums["floored"] += reward.is_floored
        self.sums["reward"] += total
        self._peak("reward", total)
        for name, value in reward.parts.items():
            self.sums[f"part/{name}"] += value
        verdict = None if reward.counted is None else facts.verdicts[reward.counted][1]
        plain = verdict.as_score if verdict and verdict.as_score else FAILURE_SCORE
        covered = verdict.as_covered if verdict and verdict.as_covered else FAILURE_SCORE
        self.sums["log_as"] += math.log(plain)
        self.sums["log_as_covered"] += math.log(covered)
        if verdict is None:
            return
        self.sums["judged"] += 1
        self.sums["solved"] += verdict.num_correct == len(verdict.graphs)
        self.sums["graphs"] += len(verdict.graphs)
        for outcome, count in Counter(graph.outcome.value for graph in verdict.graphs).items():
            self.sums[f"outcome/{outcome}"] += count

    def _add_rules(self, verdicts: list[Verdict]) -> None:
        rules = {violation.rule for verdict in verdicts for violation in verdict.all_violations}
        self.sums["violating"] += bool(rules)
        for rule in rules:
            self.sums[f"rule/{rule}"] += 1
        graphs = [graph for verdict in verdicts for graph in verdict.graphs]
        self.sums["batch_variant"] += any(is_batch_variant(graph) is True for graph in graphs)

    def _peak(self, name: str, value: float) -> None:
        self.peaks[f"max_{name}"] = max(self.peaks.get(f"max_{name}", value), value)


def merge_tallies(tallies: Iterable[Mapping[str, Any]], *, num_judges: int | None = None) -> dict[str, float]:
    """The figures of a step over all ranks. num_judges: places for judges of the evaluator, for its utilisation.

    Shares are 0..1 and of the rollouts unless their name says otherwise. A figure with nothing under it is left out.
    """
    sums: defaultdict[str, float] = defaultdict(float)
    peaks: dict[str, float] = {}
    for tally in tallies:
        for name, value in tally["sums"].items():
            sums[name] += value
        for name, value in tally["peaks"].items():
            peaks[name] = max(peaks.get(name, value), value)
    # a figure that nobody counted is 0
    return _rollout_figures(sums, peaks) | _reward_figures(sums, peaks) | _time_figures(sums, peaks, num_judges)


def judge_seconds(verdict: Verdict) -> float:
    """Seconds that a judge worked on the verdict; 0 for one that a cache served."""
    if verdict.from_cache:
        return 0.0
    return max(0.0, verdict.timings.get("total", 0.0) - verdict.timings.get(WAITING_STAGE, 0.0))


def _rollout_figures(sums: Mapping[str, float], peaks: Mapping[str, float]) -> dict[str, float]:
    rollouts = sums["rollouts"]
    figures: dict[str, float] = {
        "rollouts/num": rollouts,
        "rollouts/num_infrastructure": sums["failed"],
        "rollouts/num_violating": sums["violating"],
    }
    if rollouts:
        figures |= {
            "rollouts/infrastructure_share": sums["failed"] / rollouts,
            "rollouts/unscored_share": 1 - sums["scored"] / rollouts,
            "rollouts/violation_rate": sums["violating"] / rollouts,
            "rollouts/batch_variant_rate": sums["batch_variant"] / rollouts,
            "turns/mean": sums["turns"] / rollouts,
            "turns/max": peaks["max_turns"],
            "turns/malformed_calls": sums["malformed"] / rollouts,
            "tokens/mean": sums["tokens"] / rollouts,
            "tokens/max": peaks["max_tokens"],
            "evaluations/mean": sums["evaluations"] / rollouts,
        }
        figures |= {f"violations/{name[5:]}": n / rollouts for name, n in sums.items() if name.startswith("rule/")}
        figures |= {name: n / rollouts for name, n in sums.items() if name.startswith("stop/")}
    if sums["evaluations"]:
        figures["evaluations/unstable_share"] = sums["incomplete"] / sums["evaluations"]
    if sums["template_checked"]:
        figures["template/drift_share"] = sums["template_drifted"] / sums["template_checked"]
    return figures


def _reward_figures(sums: Mapping[str, float], peaks: Mapping[str, float]) -> dict[str, float]:
    figures: dict[str, float] = {"groups/num": sums["groups"], "groups/resampled": sums["groups_resampled"]}
    if sums["groups"]:
        figures |= {
            "groups/dead_share": sums["groups_dead"] / sums["groups"],
            "groups/spread": sums["groups_spread"] / sums["groups"],
        }
    scored = sums["scored"]
    if scored:
        figures |= {
            "rewards/total": sums["reward"] / scored,
            "rewards/max": peaks["max_reward"],
            "rewards/floored_share": sums["floored"] / scored,
            # geometric means over the scored rollouts; one that was never evaluated counts as a failure
            "score/as": math.exp(sums["log_as"] / scored),
            "score/as_covered": math.exp(sums["log_as_covered"] / scored),
            "score/evaluated_share": sums["judged"] / scored,
            "score/solved_share": sums["solved"] / scored,
        }
        figures |= {f"rewards/{name[5:]}": n / scored for name, n in sums.items() if name.startswith("part/")}
    if sums["graphs"]:  # shares of the graphs of the verdicts that count
        graphs = sums["graphs"]
        figures |= {f"outcomes/{name[8:]}": n / graphs for name, n in sums.items() if name.startswith("outcome/")}
    return figures


def _time_figures(sums: Mapping[str, float], peaks: Mapping[str, float], num_judges: int | None) -> dict[str, float]:
    figures = {f"seconds/{name[:-2]}": value for name, value in peaks.items() if name.endswith("_s")}
    figures["seconds/judges"] = sums["judge_s"]
    shorter = min(peaks.get("generation_s", 0.0), peaks.get("evaluation_s", 0.0))
    if shorter > 0:
        # 1: the shorter of the two was hidden behind the longer one
        figures["evaluator/overlap_share"] = min(1.0, peaks.get("overlap_s", 0.0) / shorter)
    wall_s = peaks.get("rollout_s", 0.0)
    if num_judges and wall_s > 0:
        figures["evaluator/utilisation"] = sums["judge_s"] / (num_judges * wall_s)
    return figures
