"""`passwright bench agents`: what agents reach with one and the same proposer, at equal numbers of evaluations.

    tasks -> a collection an agent (the tuner proposes, each attempt ends after N evaluations) -> best so far over N

The tuner is no language model (trajectories/policies/tuner.py): the difference is the search's, not a model's. Each
collection is an ordinary one under OUT, so a run goes on where it stopped, and the viewer opens it.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eval_harness.errors import UserError
from scripts.arguments import add_resume, check_device, say

if TYPE_CHECKING:
    from data.task import Task
    from trajectories.collect import CollectConfig
    from trajectories.record import Trajectory

HELP = "What evolve and ksearch reach beside iterative, with the tuner as proposer and equal evaluations."

AGENTS = ("iterative", "evolve", "ksearch")
DEFAULT_OUT = Path("runs/bench/agents")
DEFAULT_JOBS = {"cpu": 1, "cuda": 4}
MIN_TASKS = 12
NO_LIMIT = 100_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tasks", default="passbench_lite:eval", metavar="TASK", help="default: passbench_lite:eval")
    parser.add_argument("--sample", type=int, default=MIN_TASKS, metavar="N", help=f"tasks; default: {MIN_TASKS}")
    parser.add_argument("--evaluations", type=int, default=24, metavar="N", help="of each attempt; default: 24")
    parser.add_argument(
        "--agents", default=",".join(AGENTS), metavar="NAMES", help=f"kinds or presets; default: {','.join(AGENTS)}"
    )
    parser.add_argument("--seed", type=int, default=0, help="draws the tasks, and seeds the attempts; default: 0")
    parser.add_argument("--max-graphs", type=int, default=8, metavar="N", help="of a task; default: 8")
    parser.add_argument("--jobs", type=int, metavar="N", help="judges; default: 4 on a GPU, 1 on a CPU")
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, metavar="DIR", help=f"default: {DEFAULT_OUT}")
    add_resume(parser)


def run(args: argparse.Namespace) -> int:
    from eval_harness.executor import LocalExecutor
    from scripts.benches.agents_figures import agent_figures, render, targets
    from scripts.benches.output import machine_facts, report
    from trajectories.collect import run_collect
    from trajectories.store import TrajectoryStore

    device = check_device(args.device)
    names = [name for name in args.agents.split(",") if name]
    if min(args.sample, args.evaluations, args.max_graphs, args.jobs or 1) < 1 or not names:
        raise UserError("--sample, --evaluations, --max-graphs, --jobs: give at least 1; --agents: name one or more")
    tasks = draw_tasks(args.tasks, device, sample=args.sample, seed=args.seed, max_graphs=args.max_graphs)
    jobs = args.jobs or DEFAULT_JOBS[device.partition(":")[0]]
    found: dict[str, list[Trajectory]] = {}
    with LocalExecutor(device, num_judges=jobs) as executor:
        for name in names:
            config = collection(name, args, device, jobs)
            say(f"bench agents: {name} on {len(tasks)} tasks, {args.evaluations} evaluations each, into {config.root}")
            run_collect(config, tasks, executor, resume=args.resume, num_judges=jobs)
            found[name] = list(TrajectoryStore(config.root))
    figures = agent_figures(found, args.evaluations) | {"tasks": args.tasks, "seed": args.seed}
    return report(
        args,
        "agents",
        body=render(figures),
        figures=figures,
        targets=targets(figures, device),
        facts=machine_facts(device),
    )


def draw_tasks(reference: str, device: str, *, sample: int, seed: int, max_graphs: int) -> list[Task]:
    """Tasks at random that the expert knows and whose passes have something to tune. Raises UserError for none."""
    from data.passbench import load_tasks
    from trajectories.policies.expert_pass import plan_pass
    from trajectories.policies.tuner_sites import find_sites

    order = [task for task in load_tasks(reference) if len(task.graphs) <= max_graphs]
    random.Random(seed).shuffle(order)
    tasks: list[Task] = []
    for task in order:
        files = {path: text for path, text in plan_pass(task.graphs, device).files.items() if text is not None}
        if find_sites(files):
            tasks.append(task)
        if len(tasks) == sample:
            return tasks
    if not tasks:
        raise UserError(f"--tasks {reference}: the expert knows none of at most {max_graphs} graphs")
    return tasks


def collection(name: str, args: argparse.Namespace, device: str, jobs: int) -> CollectConfig:
    """One agent's collection: the same tuner, tasks, seed and evaluations for all."""
    from trajectories.agents import named_agent
    from trajectories.collect import CollectConfig
    from trajectories.limits import AgentLimits

    agent: dict[str, Any] = named_agent(name, {})
    if agent.get("kind") == "evolve":  # evaluations end it, not its own number of generations
        agent["generations"] = args.evaluations
        agent["translation_rounds"] = 1
    return CollectConfig(
        name=name,
        tasks=[args.tasks],
        policy={"kind": "tuner"},
        agent=agent,
        limits=AgentLimits(max_turns=NO_LIMIT, max_evaluations=args.evaluations, time_limit_s=None),
        device=device,
        seed=args.seed,
        num_workers=jobs + 1,
        verdict_cache=False,
        out_dir=args.out / name,
    )
