"""`passwright show`: a task, a trajectory or a verdict for a reader, told apart by what the argument is."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # pydantic takes longer to import than --help may take
    from trajectories.record import Trajectory

HELP = "Show a task, a trajectory or a verdict."

CLIPPED_CHARS = 1_500
"""Of each message, unless --full is given."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", metavar="WHAT", help="a TASK, or the JSON file of a trajectory or of a verdict")
    parser.add_argument("--full", action="store_true", help="do not clip long messages")


def run(args: argparse.Namespace) -> int:
    path = Path(args.what)
    if path.suffix == ".json":
        print(render_record_file(path, full=args.full))
        return 0
    from data.passbench import load_tasks
    from scripts.verbs.tasks import render_task

    print("\n\n".join(render_task(task) for task in load_tasks(args.what)))
    return 0


def render_record_file(path: Path, *, full: bool = False) -> str:
    """The text of a trajectory's or a verdict's file. Raises UserError naming the file."""
    from pydantic import ValidationError

    from eval_harness.errors import UserError
    from eval_harness.verdict import Verdict
    from eval_harness.verdict_text import render_verdict
    from trajectories.record import Trajectory

    record = _read_object(path)
    record_type = Trajectory if "trajectory_id" in record else Verdict
    try:
        parsed = record_type.model_validate(record)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UserError(
            f"{path}: neither a trajectory nor a verdict of this version ({where}: {first['msg']})"
        ) from None
    if isinstance(parsed, Verdict):
        return render_verdict(parsed)
    return render_trajectory(parsed, full=full)


def render_trajectory(trajectory: Trajectory, *, full: bool = False) -> str:
    """The conversation turn by turn, then how it ended."""
    from eval_harness.verdict_text import render_verdict

    verdicts = {record.turn: record.verdict for record in trajectory.evaluations}
    lines = [f"trajectory {trajectory.trajectory_id}: {trajectory.policy.get('kind', '?')} on {trajectory.device}"]
    for message in trajectory.messages:
        lines += ["", f"--- {message.role}" + (f", turn {message.turn}" if message.turn else "")]
        if message.reasoning:
            lines.append(f"(reasoning) {_clip(message.reasoning, full)}")
        if message.content:
            lines.append(_clip(message.content, full))
        for call in message.tool_calls:
            lines.append(f"-> {call.name} {_clip(_readable_arguments(call.arguments), full)}")
    lines += ["", f"stopped: {trajectory.stop_reason or 'still running'} after {trajectory.num_turns} turns"]
    if trajectory.error:
        lines.append(f"error: {trajectory.error}")
    for turn, verdict in verdicts.items():
        lines.append(f"turn {turn}: AS {verdict.as_score}, covered {verdict.as_covered}")
    if trajectory.final_verdict is not None:
        lines += ["", "final verdict", render_verdict(trajectory.final_verdict)]
    return "\n".join(lines)


def _readable_arguments(arguments: str) -> str:
    """Tool arguments with real line breaks: file contents are what one wants to read."""
    try:
        parsed = json.loads(arguments)
    except json.JSONDecodeError:
        return arguments
    if not isinstance(parsed, dict):
        return arguments
    return "\n   ".join(f"{name}: {value}" for name, value in parsed.items())


def _clip(text: str, full: bool) -> str:
    if full or len(text) <= CLIPPED_CHARS:
        return text
    return f"{text[:CLIPPED_CHARS]}\n[{len(text) - CLIPPED_CHARS} more characters; --full shows them]"


def _read_object(path: Path) -> dict[str, Any]:
    from eval_harness.errors import UserError

    try:
        record = json.loads(path.read_text())
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; give a TASK or a record's JSON file") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not JSON ({error}); give a trajectory's or a verdict's file") from None
    if not isinstance(record, dict):
        raise UserError(f"{path}: not a record; give a trajectory's or a verdict's file")
    return record
