"""`passwright passes`: a library of verified passes: add, list, search, export."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scripts.arguments import add_device, add_json, check_device, say, write_json

if TYPE_CHECKING:
    from eval_harness.pass_library import PassEntry, PassLibrary

HELP = "A library of verified passes: what was collected is found again, applied, or exported as a package."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    add = actions.add_parser("add", help="take the verified passes of a collection, or judge one folder and take it")
    add.add_argument("--collection", type=Path, action="append", default=[], metavar="DIR", help="what collect wrote")
    add.add_argument("--pass-dir", type=Path, metavar="DIR", help="a pass folder, judged now by the protocol strict")
    add.add_argument("--task", metavar="TASK", help="with --pass-dir: what it is for")
    add.add_argument("--min-as", type=float, default=1.0, metavar="X", help="least covered AS; default: 1, eager's")
    add_device(add)
    listed = actions.add_parser("list", help="every pass, the fastest first")
    search = actions.add_parser("search", help="passes for a graph, an operator sequence, or words")
    search.add_argument("words", nargs="*", metavar="WORD", help="each in task, title, source or operators")
    search.add_argument("--task", metavar="TASK", help="passes that were shown right on a graph of this task")
    search.add_argument("--operators", metavar="NAMES", help='in a row, such as "add layer_norm"')
    search.add_argument("--on", choices=("cpu", "cuda"), help="judged on this kind of device")
    export = actions.add_parser("export", help="write a Python package whose backend() applies passes")
    export.add_argument("names", nargs="*", metavar="PASS", help="starts of hashes; default: all")
    export.add_argument("--name", default="my_passes", help="of the package; default: my_passes")
    export.add_argument("--out", type=Path, required=True, metavar="DIR")
    for each in (add, listed, search, export):
        each.add_argument(
            "--library", type=Path, default=Path("runs/passes"), metavar="DIR", help="default: runs/passes"
        )
    for each in (add, listed, search):
        add_json(each, "the entries")


def run(args: argparse.Namespace) -> int:
    from eval_harness.pass_library import PassLibrary

    library = PassLibrary(args.library)
    return {"add": _add, "list": _list, "search": _search, "export": _export}[args.action](args, library)


def _add(args: argparse.Namespace, library: PassLibrary) -> int:
    from eval_harness.errors import UserError

    if bool(args.collection) == (args.pass_dir is not None):
        raise UserError("passes add: give --collection, or --pass-dir with --task")
    entries: list[PassEntry] = []
    refused: dict[str, int] = {}
    for folder in args.collection:
        for files, verdict, task, source in _candidates(folder):
            try:
                entries.append(library.add(files, verdict, task=task, source=source, min_as=args.min_as))
            except UserError as error:
                reason = str(error).partition("not taken, ")[2]
                refused[reason] = refused.get(reason, 0) + 1
    if args.pass_dir is not None:
        entries.append(_judged(args, library))
    _show(args, entries)
    for reason, count in sorted(refused.items(), key=lambda item: -item[1]):
        say(f"{count} not taken: {reason}")
    return 0


def _candidates(folder: Path) -> Any:
    """(files, fresh verdict, task or None, source) of each finished attempt of a collection."""
    from data.passbench import load_tasks
    from eval_harness.pass_library import refusal
    from trajectories.store import TrajectoryStore

    store = TrajectoryStore(folder)
    tasks: dict[str, Any] = {}
    if (folder / "manifest.json").is_file():
        for reference in store.manifest.get("config", {}).get("tasks", []):
            try:
                tasks |= {task.content_hash: task for task in load_tasks(reference)}
            except (ValueError, OSError) as error:
                say(f"{reference}: {error}; passes of it are taken without operators")
    for trajectory in store:
        verdict, files = trajectory.final_verdict, trajectory.best_files
        if verdict is None or files is None:
            say(f"{trajectory.trajectory_id}: not taken, {refusal(verdict) or 'it has no pass'}")
            continue
        yield files, verdict, tasks.get(trajectory.task_hash), f"{folder.name}/{trajectory.trajectory_id}"


def _judged(args: argparse.Namespace, library: PassLibrary) -> PassEntry:
    from data.passbench import load_tasks
    from eval_harness.candidate import Candidate
    from eval_harness.errors import UserError
    from eval_harness.executor import LocalExecutor
    from eval_harness.presets import load_protocol

    if args.task is None:
        raise UserError("--pass-dir: give --task too, the task that it is for")
    tasks = load_tasks(args.task)
    if len(tasks) != 1:
        raise UserError(f"--task {args.task}: names {len(tasks)} tasks; give one, such as mini/llama_rms_norm")
    candidate, task = Candidate.from_dir(args.pass_dir), tasks[0]
    with LocalExecutor(check_device(args.device)) as executor:
        verdict = executor.submit(candidate, task, protocol=load_protocol("strict")).result()
    return library.add(candidate.files, verdict, task=task, source=str(args.pass_dir), min_as=args.min_as)


def _list(args: argparse.Namespace, library: PassLibrary) -> int:
    _show(args, library.search())
    return 0


def _search(args: argparse.Namespace, library: PassLibrary) -> int:
    from data.passbench import load_tasks

    hashes = [graph.content_hash for task in load_tasks(args.task) for graph in task.graphs] if args.task else []
    operators = (args.operators or "").split()
    found = library.search(graph_hashes=hashes, operators=operators, words=args.words, device=args.on)
    _show(args, found)
    return 0


def _export(args: argparse.Namespace, library: PassLibrary) -> int:
    from eval_harness.errors import UserError
    from eval_harness.pass_library import export_package

    entries = library.search()
    if args.names:
        entries = []
        for name in args.names:
            entry = library.find(name)
            if entry is None:
                raise UserError(f"{name}: no pass of {library.root} begins so; see passwright passes list")
            entries.append(entry)
    if not entries:
        raise UserError(f"{library.root}: holds no pass; add some with passwright passes add")
    path = export_package(library, entries, args.out, args.name)
    print(f"{len(entries)} passes in {path}; pip install {path}, then {args.name}.backend()")
    return 0


def _show(args: argparse.Namespace, entries: list[PassEntry]) -> None:
    import sys

    from scripts.benches.output import render_table

    rows = [
        (e.name, f"{e.best.as_covered or 0:.3f}", len(e.graphs), ",".join(e.devices), (e.title or e.task_id)[:50],
         " ".join(e.graphs[0].operators)[:60])
        for e in entries
    ]  # fmt: skip
    header = ("pass", "covered AS", "graphs", "device", "for", "operators")
    text = f"{render_table(header, rows)}\n{len(entries)} passes" if rows else "no passes"
    print(text, file=sys.stderr if args.json == "-" else sys.stdout)
    if args.json:
        write_json(args.json, [entry.model_dump(mode="json") for entry in entries])
