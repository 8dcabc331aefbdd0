"""What of a GRPO run lies in its checkpoints beside weights and optimizer, and in logs that must agree with them.

    checkpoint-N/passwright_grpo.json   pools, alarms, totals: written before trainer_state.json
    rollouts.jsonl                      a line an attempt, in the order of the steps
    rollouts/, evaluations/             their trajectories, for the viewer

A run that goes on from step N forgets what was logged after it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eval_harness.errors import UserError
from training.difficulty_pools import DifficultyPools
from training.grpo_alarms import Alarms
from trajectories.store import TRAJECTORIES_DIR, disk_errors, write_atomically

STATE_FILE = "passwright_grpo.json"
STATE_VERSION = 1
ROLLOUTS_FILE = "rollouts.jsonl"
ROLLOUTS_DIR = "rollouts"
EVALUATIONS_DIR = "evaluations"

_TOTALS = {
    "rollouts/num": "num_rollouts",
    "rollouts/num_infrastructure": "num_infrastructure_failures",
    "rollouts/num_violating": "num_violating",
    "groups/num": "num_groups",
    "groups/resampled": "num_resampled_groups",
    "seconds/rollout": "rollout_s",
    "seconds/generation": "generation_s",
    "seconds/evaluation": "evaluation_s",
    "seconds/overlap": "overlap_s",
    "seconds/judges": "judge_s",
}
"""Figure of a step -> what it adds to over the run."""


@dataclass
class GrpoState:
    """The same on every process."""

    pools: DifficultyPools
    alarms: Alarms
    totals: Counter[str] = field(default_factory=Counter)

    def add(self, figures: Mapping[str, float]) -> None:
        """Add the figures of one lot of rollouts to the totals."""
        for name, total in _TOTALS.items():
            self.totals[total] += figures.get(name, 0.0)  # type: ignore[assignment]
        self.totals["num_dead_groups"] += round(figures.get("groups/dead_share", 0.0) * figures.get("groups/num", 0.0))

    def save(self, checkpoint: Path) -> None:
        """Write it into a checkpoint's folder, which need not exist yet. Raises UserError where the disk is full."""
        state = {
            "version": STATE_VERSION,
            "pools": self.pools.state_dict(),
            "alarms": self.alarms.state_dict(),
            "totals": dict(self.totals),
        }
        with disk_errors(checkpoint):
            checkpoint.mkdir(parents=True, exist_ok=True)
            write_atomically(checkpoint / STATE_FILE, json.dumps(state, indent=1) + "\n")

    def load(self, checkpoint: Path) -> None:
        """Go on from a checkpoint. Raises UserError for one that this program cannot read."""
        path = checkpoint / STATE_FILE
        try:
            state = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise UserError(f"{path}: cannot be read ({error}); remove its folder to go on from an older one") from None
        if state.get("version") != STATE_VERSION:
            found = state.get("version")
            raise UserError(f"{path}: version {found}, this program reads {STATE_VERSION}; start anew with --no-resume")
        self.pools.load_state_dict(state["pools"])
        self.alarms.load_state_dict(state["alarms"])
        self.totals = Counter(state["totals"])


class RolloutLog:
    """rollouts.jsonl; the first process writes it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Raises UserError where the disk is full."""
        with disk_errors(self.path), self.path.open("a", encoding="utf-8") as stream:
            stream.writelines(json.dumps(row) + "\n" for row in rows)

    def forget_from(self, step: int) -> None:
        """Drop the lines of this step and later ones, and one that a kill cut short."""
        if not self.path.exists():
            return
        kept = []
        for line in self.path.read_text(encoding="utf-8").splitlines():
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if row["step"] < step:
                kept.append(line)
        write_atomically(self.path, "".join(f"{line}\n" for line in kept))


def forget_trajectories(root: Path, step: int) -> int:
    """Remove the records of this step and later ones below a collection's folder; returns how many."""
    num_removed = 0
    for path in (root / TRAJECTORIES_DIR).glob("step*"):
        digits = path.name[len("step") :].split(".")[0]
        if digits.isdigit() and int(digits) >= step:
            path.unlink(missing_ok=True)
            num_removed += 1
    return num_removed
