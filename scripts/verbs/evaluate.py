"""`passwright evaluate`: one candidate on one task -> a readable verdict and its record."""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scripts.arguments import (
    add_cache,
    add_device,
    add_executor,
    add_json,
    check_executor_device,
    executor_config,
    say,
    write_json,
)
from scripts.exit_status import TARGET_MISSED

if TYPE_CHECKING:
    from eval_harness.candidate import Candidate

HELP = "Evaluate a pass folder on a task and print the verdict."

TICK_S = 0.5
"""How often the elapsed time is shown while an evaluation runs."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task", metavar="TASK", help="DIR, FILE.parquet[:split][/task_id] or NAME[:split][/task_id]")
    parser.add_argument("--pass-dir", type=Path, required=True, metavar="DIR", help="the candidate: its pass_dir")
    parser.add_argument("--protocol", default="strict", metavar="P", help="strict (default), reward or passnet")
    parser.add_argument(
        "--bi", choices=("off", "report", "enforce"), default="off",
        help="batch invariance: report it, or enforce it (BATCH_VARIANT); default: off",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, help="draw inputs from this seed; default: a secret one")
    parser.add_argument("--fail-under", type=float, metavar="AS", help="exit with 4 if AS is below this")
    add_device(parser)
    add_executor(parser)
    add_json(parser, "the Verdict record")
    add_cache(parser, default="none, each evaluation is fresh", can_disable=False)


def run(args: argparse.Namespace) -> int:
    from data.passbench import load_task
    from eval_harness.presets import load_protocol

    protocol = load_protocol(args.protocol, batch_invariance=args.bi)
    task = load_task(args.task)
    candidate = read_candidate(args.pass_dir)
    where = executor_config(args)
    device = check_executor_device(where, args.device)

    from eval_harness.cached_evaluator import with_cache
    from eval_harness.executor_config import open_executor
    from eval_harness.verdict_text import render_verdict

    clock = StageClock()
    with open_executor(where, device=device, progress=clock.enter) as executor:
        about = f"{len(task.graphs)} graphs, {protocol.name}, {executor.device}"
        say(f"evaluating {args.pass_dir} on {task.task_id}: {about}")
        evaluator = with_cache(executor, args.cache, max_mb=args.cache_mb)
        verdict = clock.watch(evaluator.submit(candidate, task, protocol=protocol, seed=args.seed))
    if verdict.from_cache:
        say(f"an earlier verdict, served from {args.cache}; leave --cache out for a fresh one")
    # with --json - stdout is the record alone, so that it can be piped
    print(render_verdict(verdict), file=sys.stderr if args.json == "-" else sys.stdout)
    if args.json:
        write_json(args.json, verdict.model_dump(mode="json"))
    if args.fail_under is not None and (verdict.as_score is None or verdict.as_score < args.fail_under):
        say(f"AS {verdict.as_score} is below --fail-under {args.fail_under}")
        return TARGET_MISSED
    return 0


def read_candidate(pass_dir: Path) -> Candidate:
    """The candidate in a folder. Raises UserError that names the file by its whole path."""
    from eval_harness.candidate import Candidate, MalformedCandidateError

    try:
        return Candidate.from_dir(pass_dir)
    except MalformedCandidateError as error:
        # a candidate knows its files by their names inside the folder only
        folder = "" if str(error).startswith(str(pass_dir)) else f"{pass_dir}/"
        raise MalformedCandidateError(f"{folder}{error}") from None


class StageClock:
    """On a terminal, the running evaluation's stage and the seconds that have passed, on one line of stderr."""

    def __init__(self) -> None:
        self._stage = "starting the judge"
        self._started = time.monotonic()
        self._is_shown = sys.stderr.isatty()

    def enter(self, stage: str) -> None:
        """Called by the executor from another thread."""
        self._stage = stage

    def watch(self, future: Future[Any]) -> Any:
        """Wait for the future and return its result."""
        while not wait_for([future], timeout=TICK_S).done:
            self._write(f"{time.monotonic() - self._started:5.0f} s  {self._stage}")
        self._write("")
        return future.result()

    def _write(self, text: str) -> None:
        if self._is_shown:
            # clears to the end of the line: stage names differ in length
            print(f"\r{text}\x1b[K", end="", file=sys.stderr, flush=True)
