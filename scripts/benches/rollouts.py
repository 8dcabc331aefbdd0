"""`passwright bench rollouts`: do generation and evaluation of many rollouts overlap, so that the larger sets the time?

The real turn loop (training/rollouts.py) with its environments, tokens and trajectories on disk, between two stand-ins
of known speed: an engine that gives every row one token a step, as a continuous batching server does, and judges that
take a fixed time. The same rollouts run twice: with judges that take no time, which is what generation alone needs, and
with both; what evaluation alone needs is the judges' busy time divided among them. --trl N: TRL's own tool loop on N
rollouts, really run, beside ours.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.benches.collect_stubs import StubJudge, busy_share
from scripts.benches.output import Target, machine_facts, render_table, report
from scripts.benches.rollout_script import RolloutScript, make_script

HELP = "Overlap generation and evaluation of many rollouts; --trl: beside TRL's own tool loop."

MAX_RATIO = 1.25


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rollouts", type=int, default=64, metavar="N", help="at a time; default: 64")
    parser.add_argument("--turns", type=int, default=4, metavar="N", help="each with an evaluation; default: 4")
    parser.add_argument("--evaluation", type=float, default=1.0, metavar="S", help="of a judge; default: 1")
    parser.add_argument("--judges", type=int, default=8, metavar="N", help="default: 8")
    parser.add_argument("--step", type=float, default=0.01, metavar="S", help="of the engine, a token; default: 0.01")
    parser.add_argument(
        "--tokens", type=int, nargs=2, default=[100, 400], metavar=("LEAST", "MOST"),
        help="generated a turn, drawn between; default: 100 400",
    )  # fmt: skip
    parser.add_argument(
        "--trl", type=int, default=0, metavar="N",
        help="also run N rollouts by TRL's own environment loop, which calls tools one after another (32 s for 8)",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    script = make_script(args.rollouts, args.turns, tuple(args.tokens))
    alone = measure(script, args, evaluation_s=0.0)
    both = measure(script, args, evaluation_s=args.evaluation)
    evaluation_s = both.judges_s / args.judges
    ratio = both.wall_s / max(alone.wall_s, evaluation_s)
    rows: list[list[Any]] = [
        ["generation alone", alone.wall_s, alone.generation_s, alone.judges_s / args.judges, None],
        ["both", both.wall_s, both.generation_s, evaluation_s, ratio],
    ]
    figures: dict[str, Any] = {
        "generation_s": alone.wall_s,
        "evaluation_s": evaluation_s,
        "wall_s": both.wall_s,
        "ratio": ratio,
        "overlap_s": both.overlap_s,
        "own_s": alone.wall_s - alone.generation_s,
        "judges_busy_share": both.busy,
        "num_evaluations": both.num_evaluations,
        "num_generated_tokens": both.num_tokens,
        "num_not_whole": both.num_not_whole,
    }
    if args.trl:
        few = make_script(args.trl, args.turns, tuple(args.tokens))
        ours = measure(few, args, evaluation_s=args.evaluation)
        from scripts.benches.rollouts_trl import run_trl_loop

        trl_s = run_trl_loop(few, step_s=args.step, evaluation_s=args.evaluation)
        rows.append([f"ours, {args.trl} rollouts", ours.wall_s, ours.generation_s, ours.judges_s / args.judges, None])
        rows.append([f"TRL's tool loop, {args.trl} rollouts", trl_s, None, None, None])
        figures |= {"trl_rollouts": args.trl, "trl_wall_s": trl_s, "ours_wall_s": ours.wall_s}
    name = "wall time over the larger of generation and evaluation"
    targets = [
        Target(name, ratio, MAX_RATIO, "at most"),
        Target("rollouts without all their turns and verdicts", both.num_not_whole, 0, "at most"),
    ]
    body = (
        f"{args.rollouts} rollouts of {args.turns} turns, {both.num_tokens} tokens generated at {args.step:g} s a "
        f"step, {both.num_evaluations} evaluations of {args.evaluation:g} s on {args.judges} judges\n"
        + render_table(("run", "wall s", "engine busy s", "judges s / judges", "ratio"), rows)
        + f"\njudges busy {100 * both.busy:.0f}% of the run with both\n"
    )
    return report(args, "rollouts", body=body, figures=figures, targets=targets, facts=machine_facts("cpu"))


@dataclass(frozen=True)
class Measured:
    """One run of the rollouts."""

    wall_s: float
    generation_s: float
    """In the engine."""
    overlap_s: float
    judges_s: float
    """Of all judges together, evaluating."""
    busy: float
    """Share of the judges' time in which they evaluated."""
    num_evaluations: int
    num_tokens: int
    """Generated."""
    num_not_whole: int
    """Rollouts that lack a turn, a verdict or a token of the mask."""


def measure(script: RolloutScript, args: argparse.Namespace, *, evaluation_s: float) -> Measured:
    """Run the script's rollouts once."""
    from eval_harness.judge_pool import JudgePool
    from training.generation import ScriptedEngine
    from training.rollouts import RolloutHooks, RolloutLimits, RolloutTimes, run_rollouts
    from trajectories.environment import PassEnvironment
    from trajectories.store import TrajectoryStore

    judges = [StubJudge(evaluation_s) for _ in range(args.judges)]
    times: list[RolloutTimes] = []
    engine = ScriptedEngine(script.answer, max_model_len=1 << 20, tokens_per_step=1, step_s=args.step)
    with tempfile.TemporaryDirectory(prefix="bench-rollouts-") as folder, JudgePool(judges) as pool:
        store = TrajectoryStore(Path(folder))
        store.open_for_writing({"bench": "rollouts"})
        began = time.monotonic()
        rollouts = run_rollouts(
            script.requests,
            engine,
            lambda request: PassEnvironment(request.task, pool, limits=script.limits),
            RolloutLimits(max_new_tokens=1 << 16, max_completion_tokens=1 << 19),
            tokenizer=script.tokenizer,
            store=store,
            hooks=RolloutHooks(timed=times.append),
        )
        wall_s = time.monotonic() - began
        num_stored = len(store.record_paths())
        store.close()
    whole = [
        rollout
        for rollout in rollouts
        if rollout.num_turns == len(rollout.verdicts) == script.num_turns
        and sum(rollout.tokens.env_mask) == rollout.tokens.num_generated == script.num_tokens(rollout.request.key)
    ]
    return Measured(
        wall_s=wall_s,
        generation_s=times[0].generation_s,
        overlap_s=times[0].overlap_s,
        judges_s=sum(end - begin for judge in judges for begin, end in judge.busy),
        busy=busy_share(judges, began, began + wall_s),
        num_evaluations=sum(len(judge.busy) for judge in judges),
        num_tokens=sum(rollout.tokens.num_generated for rollout in rollouts),
        num_not_whole=len(rollouts) - min(len(whole), num_stored),
    )
