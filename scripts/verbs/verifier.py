"""`passwright verifier`: soft verifiers measured against the harness's own verdicts, and their prompts tuned."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scripts.arguments import add_config, add_json, say, write_json

if TYPE_CHECKING:
    from trajectories.verifiers.labels import LabelledCandidate

HELP = "Soft verifiers: how often a model is right about a pass before it runs, and better prompts for it."

DEFAULT_COUNT = 30
DEFAULT_GENERATIONS = 20
DEFAULT_OUT = Path("runs/verifiers")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    measure = actions.add_parser("eval", help="accuracy, precision and recall on a balanced set of judged candidates")
    tune = actions.add_parser("tune", help="let a model write better prompts, generation by generation")
    for each in (measure, tune):
        each.add_argument(
            "--collection", type=Path, action="append", required=True, metavar="DIR",
            help="whose candidates are the set; may be given again",
        )  # fmt: skip
        add_config(each, required=False)
        each.add_argument(
            "--aspects", default="compilation,memory,numerics", metavar="NAMES", help="default: all three"
        )
        each.add_argument(
            "--count",
            type=int,
            default=DEFAULT_COUNT,
            metavar="N",
            help=f"candidates an aspect, half of them failing; default: {DEFAULT_COUNT}",
        )
        each.add_argument(
            "--votes", type=int, default=1, metavar="N", help="a question; the majority counts; default: 1"
        )
        each.add_argument("--reflect", action="store_true", help="one more question a vote: look at your answer again")
        each.add_argument("--seed", type=int, default=0, help="draws the set; default: 0")
        add_json(each, "the figures")
    measure.add_argument("--prompts", type=Path, metavar="DIR", help="tuned prompts; default: those that ship")
    measure.add_argument("--version", type=int, metavar="N", help="of the prompts; default: the newest")
    tune.add_argument(
        "--generations", type=int, default=DEFAULT_GENERATIONS, metavar="N", help=f"default: {DEFAULT_GENERATIONS}"
    )
    tune.add_argument(
        "--out",
        type=Path,
        default=DEFAULT_OUT,
        metavar="DIR",
        help=f"prompts and scores, gone on with; default: {DEFAULT_OUT}",
    )


def run(args: argparse.Namespace) -> int:
    from eval_harness.errors import UserError
    from trajectories.verifiers.prompts import ASPECTS

    aspects = [name for name in args.aspects.split(",") if name]
    for name in aspects:
        if name not in ASPECTS:
            raise UserError(f"--aspects {name}: unknown; choose among {', '.join(ASPECTS)}")
    if min(args.count // 2, args.votes) < 1:
        raise UserError("--count: give at least 2; --votes: at least 1")
    return {"eval": _eval, "tune": _tune}[args.action](args, aspects)


def _eval(args: argparse.Namespace, aspects: list[str]) -> int:
    from scripts.benches.output import render_table
    from trajectories.verifiers.prompts import load_prompt
    from trajectories.verifiers.scoring import PAPER, score_prompt

    model = _speaker(args)
    rows, figures = [], {}
    for aspect in aspects:
        candidates = _set(args, aspect)
        prompt = load_prompt(aspect, folder=args.prompts, version=args.version)  # type: ignore[arg-type]
        score = score_prompt(prompt, candidates, model, num_votes=args.votes, reflect=args.reflect)
        figures[aspect] = score.as_dict() | {"prompt": prompt.name}
        rows.append((aspect, prompt.name, len(candidates), score.accuracy, score.precision, score.recall,
                     score.good_lost, PAPER[aspect]))  # fmt: skip
    header = (
        "aspect",
        "prompt",
        "passes",
        "accuracy",
        "precision",
        "recall (saved)",
        "good lost",
        "the paper, accuracy",
    )
    print(render_table(header, rows), file=sys.stderr if args.json == "-" else sys.stdout)
    if args.json:
        write_json(args.json, figures)
    return 0


def _tune(args: argparse.Namespace, aspects: list[str]) -> int:
    from trajectories.verifiers.prompts import load_prompt
    from trajectories.verifiers.tuning import best_of, tune_prompt

    model = _speaker(args)
    figures = {}
    for aspect in aspects:
        first = load_prompt(aspect)  # type: ignore[arg-type]
        found = tune_prompt(
            first, _set(args, aspect), model, model, args.out, generations=args.generations, num_votes=args.votes,
            reflect=args.reflect, tell=_teller(aspect),
        )  # fmt: skip
        best = best_of(found)
        start = found[0].score["accuracy"]
        text = f"{aspect}: {start:.2f} -> {best.score['accuracy']:.2f} with {best.prompt.name}, in {args.out}"
        print(text, file=sys.stderr if args.json == "-" else sys.stdout)
        figures[aspect] = {"first": found[0].score, "best": best.score, "version": best.prompt.version}
    if args.json:
        write_json(args.json, figures)
    return 0


def _teller(aspect: str) -> Callable[[str], None]:
    return lambda text: say(f"{aspect}: {text}")


def _set(args: argparse.Namespace, aspect: str) -> list[LabelledCandidate]:
    from eval_harness.errors import UserError
    from training.candidate_rows import candidates_of
    from trajectories.store import load_trajectories
    from trajectories.verifiers.labels import LabelledCandidate, balanced, label_of

    labelled = []
    for folder in args.collection:
        for trajectory in load_trajectories(folder):
            first = [m.content for m in trajectory.messages if m.turn is None and m.role == "user"]
            for record in candidates_of(trajectory):
                passes = None if record.verdict is None else label_of(record.verdict, aspect)  # type: ignore[arg-type]
                if record.verdict is not None and passes is not None:
                    outcome = next((str(g.outcome) for g in record.verdict.graphs if g.outcome != "CORRECT"), "CORRECT")
                    labelled.append(
                        LabelledCandidate(
                            record.key, trajectory.task_id, record.files, passes, outcome, "".join(first[:1])
                        )
                    )
    chosen = balanced(labelled, args.count, seed=args.seed)
    if not chosen:
        passing = sum(each.passes for each in labelled)
        raise UserError(
            f"{', '.join(map(str, args.collection))}: no balanced set about {aspect}: {passing} candidates pass, "
            f"{len(labelled) - passing} fail; collect more, with a policy that makes mistakes"
        )
    if len(chosen) < args.count:
        say(f"{aspect}: {len(chosen)} candidates instead of {args.count}: one side has no more")
    return chosen


def _speaker(args: argparse.Namespace) -> Callable[[str], str]:
    """A question in words to the configured policy, each in a conversation of its own."""
    from pydantic import BaseModel, ConfigDict

    from eval_harness.errors import UserError
    from scripts.config_loading import load_config
    from trajectories.policies import make_policy
    from trajectories.policy import PolicyError
    from trajectories.record import Message

    class VerifierRunConfig(BaseModel):
        """`policy:` alone; a collection's file serves too."""

        model_config = ConfigDict(extra="ignore")
        policy: dict[str, Any] = {}

    config = load_config(VerifierRunConfig, args.config, args.overrides)
    if not config.policy:
        raise UserError("policy: is missing; give --config FILE or policy.kind=openai policy.model=NAME ...")
    policy = make_policy(config.policy)

    def say_to(question: str) -> str:
        try:
            return policy.answer([Message(role="user", content=question)], []).content
        except PolicyError as error:
            raise UserError(f"the policy gives no answer: {error}") from None

    return say_to
