"""`passwright show`: a task, an attempt, a collection or a verdict for a reader, told apart by what the argument is."""

from __future__ import annotations

import argparse
import difflib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # pydantic takes longer to import than --help may take
    from eval_harness.verdict import Verdict
    from trajectories.record import Trajectory

HELP = "Show a task, an attempt, a collection or a verdict."

COLLECTIONS_DIR = Path("runs/collect")
"""Where attempts are looked for by id."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what",
        metavar="WHAT",
        help="id of an attempt, JSON file of an attempt or a verdict, folder of a collection, or a TASK",
    )
    parser.add_argument(
        "--dir", type=Path, metavar="DIR", help=f"the attempt's collection; default: any in {COLLECTIONS_DIR}/"
    )
    parser.add_argument("--turn", type=int, metavar="N", help="one turn of an attempt")
    parser.add_argument("--full", action="store_true", help="do not clip long texts")
    parser.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="default: at a terminal; `always` for `| less -R`",
    )


def run(args: argparse.Namespace) -> int:
    from eval_harness.errors import UserError

    record = find_record(args.what, args.dir)
    if record is None:
        if args.turn is not None:
            raise UserError(f"--turn {args.turn}: {args.what} is no attempt")
        if (Path(args.what) / "trajectories").is_dir():
            return _show_collection(Path(args.what), args.color)
        from data.passbench import load_tasks
        from scripts.verbs.tasks import render_task

        print("\n\n".join(render_task(task) for task in load_tasks(args.what)))
        return 0
    parsed = load_record(record)
    if not hasattr(parsed, "trajectory_id"):
        if args.turn is not None:
            raise UserError(f"--turn {args.turn}: {record} is a verdict, not an attempt")
        from eval_harness.verdict_text import render_verdict

        print(render_verdict(parsed))  # type: ignore[arg-type]
        return 0
    return _show_attempt(parsed, args)  # type: ignore[arg-type]


def find_record(what: str, folder: Path | None) -> Path | None:
    """The file that WHAT means; None if it is no record but a task or a collection. Raises UserError."""
    from eval_harness.errors import UserError
    from trajectories.store import TRAJECTORIES_DIR, TrajectoryStore

    if what.endswith(".json"):
        return Path(what)
    if folder is not None and not (folder / TRAJECTORIES_DIR).is_dir():
        raise UserError(f"--dir {folder}: no {TRAJECTORIES_DIR}/ in it; give a folder that `passwright collect` wrote")
    folders = [folder] if folder is not None else sorted(COLLECTIONS_DIR.glob("*/"))
    found = [path for each in folders if (path := TrajectoryStore(each).path(what)).exists()]
    if len(found) > 1:
        raise UserError(f"{what}: in {len(found)} collections; add --dir {found[0].parent.parent} or another")
    if not found and folder is not None:
        names = [path.stem for path in sorted((folder / TRAJECTORIES_DIR).glob("*.json"))]
        near = difflib.get_close_matches(what, names, n=3, cutoff=0.4) or names[:3]
        raise UserError(f"{what}: not among the {len(names)} attempts of {folder} ({', '.join(near) or 'it is empty'})")
    return found[0] if found else None


def load_record(path: Path) -> Trajectory | Verdict:
    """The trajectory or the verdict of a file. Raises UserError naming the file."""
    from pydantic import ValidationError

    from eval_harness.errors import UserError
    from eval_harness.verdict import Verdict
    from trajectories.record import Trajectory

    record = _read_object(path)
    record_type = Trajectory if "trajectory_id" in record else Verdict
    try:
        return record_type.model_validate(record)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UserError(
            f"{path}: neither a trajectory nor a verdict of this version ({where}: {first['msg']})"
        ) from None


def _show_attempt(trajectory: Trajectory, args: argparse.Namespace) -> int:
    from trajectories.pages.terminal import AttemptText, make_console

    console = make_console(sys.stdout, color=args.color)
    text = AttemptText(trajectory, full=args.full, color=console.is_terminal and not console.no_color)
    for part in text.whole() if args.turn is None else text.turn(args.turn):
        console.print(part)
    return 0


def _show_collection(folder: Path, color: str) -> int:
    from trajectories.pages.attempt_entry import attempt_entry
    from trajectories.pages.terminal import attempts_table, make_console
    from trajectories.selection import SelectionConfig
    from trajectories.store import TrajectoryStore

    selection = SelectionConfig()
    rows = [
        attempt_entry(trajectory, collection=folder.name, page="", selection=selection)
        for trajectory in TrajectoryStore(folder)
    ]
    make_console(sys.stdout, color=color).print(attempts_table(rows))
    return 0


def _read_object(path: Path) -> dict[str, Any]:
    from eval_harness.errors import UserError

    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; give an attempt's id, a TASK or a record's JSON file") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not JSON ({error}); give a trajectory's or a verdict's file") from None
    if not isinstance(record, dict):
        raise UserError(f"{path}: not a record; give a trajectory's or a verdict's file")
    return record
