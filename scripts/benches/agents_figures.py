"""The tables of `passwright bench agents`: best covered AS over evaluations, fresh verdicts, time, agents in pairs.

Pure: stored trajectories in, figures out. An attempt that ended early keeps its best for the evaluations that it left.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from scripts.benches.intervals import mean_interval
from scripts.benches.output import Target, render_table
from trajectories.record import Trajectory

FLOOR = 0.1
"""AS of a task without a correct candidate, as everywhere."""
BASELINE = "iterative"


def agent_figures(found: Mapping[str, Sequence[Trajectory]], num_evaluations: int) -> dict[str, Any]:
    """Figures of each agent, and of each against iterative on the tasks that both ended."""
    steps = _steps(num_evaluations)
    by_agent = {name: {each.task_id: each for each in trajectories} for name, trajectories in found.items()}
    return {
        "steps": steps,
        "agents": {name: _of_agent(list(each.values()), steps) for name, each in by_agent.items()},
        "against": {
            name: _against(each, by_agent[BASELINE], num_evaluations)
            for name, each in by_agent.items()
            if BASELINE in by_agent and name != BASELINE
        },
    }


def best_after(trajectory: Trajectory, count: int) -> float:
    """The best covered AS among the first `count` evaluations."""
    scores = [record.verdict.as_covered or FLOOR for record in trajectory.evaluations[:count]]
    return max(scores, default=FLOOR)


def render(figures: Mapping[str, Any]) -> str:
    """The tables as text."""
    agents, steps = figures["agents"], figures["steps"]
    curve = render_table(
        ("best covered AS after", *map(str, steps)),
        [(name, *row["curve"]) for name, row in agents.items()],
    )
    header = ("agent", "tasks", "evaluations", "answers", "final AS, fresh", "s a task", "$ a task")
    rows = [
        (name, row["num_tasks"], row["evaluations"], row["answers"], row["final"], row["seconds"], row["cost_usd"])
        for name, row in agents.items()
    ]
    pairs = [
        (
            name,
            row["num_tasks"],
            row["shown"],
            *_span(row["shown_interval"]),
            row["fresh"],
            *_span(row["fresh_interval"]),
        )
        for name, row in figures["against"].items()
    ]
    against = render_table(
        (f"over {BASELINE}", "tasks", "best shown", "low", "high", "final, fresh", "low", "high"), pairs
    )
    return f"{curve}\n\n{render_table(header, rows)}\n\n{against if pairs else ''}".rstrip()


def targets(figures: Mapping[str, Any], device: str) -> list[Target]:
    """On a GPU, where there is something to tune: each search beats the conversation."""
    if not device.startswith("cuda"):
        return []
    return [
        Target(f"{name} over {BASELINE}: final covered AS", row["fresh"], 1.0, "at least")
        for name, row in figures["against"].items()
    ]


def _of_agent(trajectories: Sequence[Trajectory], steps: Sequence[int]) -> dict[str, Any]:
    ended = [each for each in trajectories if each.stop_reason is not None]
    return {
        "num_tasks": len(ended),
        "curve": [_geometric([best_after(each, step) for each in ended]) for step in steps],
        "final": _geometric([_final(each) for each in ended]),
        "evaluations": _mean([float(len(each.evaluations)) for each in ended]),
        "answers": _mean([float(each.num_turns) for each in ended]),
        "seconds": _mean([each.duration_s for each in ended]),
        "cost_usd": _mean([each.usage.cost_usd for each in ended]),
    }


def _against(mine: Mapping[str, Trajectory], other: Mapping[str, Trajectory], num_evaluations: int) -> dict[str, Any]:
    """Ratios of geometric means over shared tasks, with 95% intervals over tasks."""
    shared = sorted(mine.keys() & other.keys())
    shown = [
        math.log(best_after(mine[task], num_evaluations) / best_after(other[task], num_evaluations)) for task in shared
    ]
    fresh = [math.log(_final(mine[task]) / _final(other[task])) for task in shared]
    return {
        "num_tasks": len(shared),
        "shown": _ratio(shown),
        "shown_interval": _interval(shown),
        "fresh": _ratio(fresh),
        "fresh_interval": _interval(fresh),
    }


def _final(trajectory: Trajectory) -> float:
    verdict = trajectory.final_verdict
    return (verdict.as_covered or FLOOR) if verdict is not None else FLOOR


def _steps(count: int) -> list[int]:
    """1, 2, 4, ... and the last."""
    return sorted({*(2**power for power in range(count.bit_length()) if 2**power <= count), count})


def _geometric(values: Sequence[float]) -> float | None:
    return math.exp(math.fsum(map(math.log, values)) / len(values)) if values else None


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _ratio(logs: Sequence[float]) -> float | None:
    return math.exp(math.fsum(logs) / len(logs)) if logs else None


def _interval(logs: Sequence[float]) -> tuple[float, float] | None:
    found = mean_interval([[value] for value in logs])
    return None if found is None else (math.exp(found[0]), math.exp(found[1]))


def _span(interval: tuple[float, float] | None) -> tuple[float | None, float | None]:
    return interval or (None, None)
