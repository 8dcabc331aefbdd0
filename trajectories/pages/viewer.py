"""build_viewer: collections of trajectories -> a folder of plain files that a browser opens from disk, no network.

    index.html                 the page; assets/ its style and scripts
    data/list-<n>.js           the list, AttemptEntry by AttemptEntry
    attempts/<name>.js         one attempt's page, loaded when it is opened
    build.json                 what was built from what: a second build does only what has changed

One record at a time is in memory (one a worker). The page reads records and summary.json, and judges nothing itself:
kept or refused is what trajectories/selection.py says of each attempt.
"""

from __future__ import annotations

import contextlib
import hashlib
import multiprocessing
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from eval_harness.errors import UserError
from trajectories.journal import journal_path
from trajectories.pages.attempt_entry import UNREADABLE, AttemptEntry, attempt_entry, unreadable_entry
from trajectories.pages.code import visible
from trajectories.pages.render import TEMPLATES_DIR
from trajectories.pages.sections import render_attempt
from trajectories.pages.viewer_folder import (
    ATTEMPTS_DIR,
    PAGE_FILE,
    as_script,
    open_folder,
    remove_left_overs,
    write_file,
    write_list,
    write_page,
    write_state,
)
from trajectories.record import Trajectory
from trajectories.selection_choice import SAME_CONVERSATION
from trajectories.selection_config import SelectionConfig
from trajectories.store import TRAJECTORIES_DIR, disk_errors, load_trajectory

MIN_ATTEMPTS_A_WORKER = 32
"""A worker takes a second to start: few attempts are rendered in this process."""
Preset = Literal["strict", "paper"]
_MAX_WORKERS = 16
_JOBS_AT_ONCE = 16
"""Handed to a worker together: neighbours are attempts at one task, which share much of their text."""


@dataclass(frozen=True)
class ViewerSummary:
    """What one build did."""

    page: Path
    num_attempts: int
    num_rendered: int
    """The rest was as at the build before."""
    num_kept: int
    unreadable: list[str]
    """One line a record that could not be read."""
    num_bytes: int
    """Of the whole folder."""
    seconds: float


@dataclass(frozen=True)
class _Job:
    """One record to be looked at."""

    path: Path
    collection: str
    script: str
    stamp: list[int]
    """Time of change in ns, and size; of its journal too, while the attempt runs."""


def build_viewer(
    folders: Sequence[Path],
    out_dir: Path,
    *,
    preset: Preset = "strict",
    num_workers: int | None = None,
    watch: Callable[[Iterable[AttemptEntry], int], Iterable[AttemptEntry]] = lambda entries, total: entries,
) -> ViewerSummary:
    """Write the viewer of the collections into out_dir, and render what has changed since it was last built.

    preset: of the selection that says what is kept; each attempt by itself, and repeats of a conversation. Near
    duplicates, quotas and the best of a task are a dataset's own choice (selection_choice.py), and not looked for.
    watch: wraps the entries as they come, with the number that will come, for a progress bar.
    Raises UserError: a folder that is no collection; an out_dir that holds something else; a full disk.
    """
    started = time.monotonic()
    selection = SelectionConfig(preset=preset, near_duplicates=None)
    collections = name_collections(folders)
    jobs = [job for name, folder in collections.items() for job in _jobs_of(folder, name)]
    with disk_errors(out_dir):
        earlier, revision = open_folder(out_dir), _revision(selection)
        known = earlier.get("attempts", {}) if earlier.get("revision") == revision else {}
        done = {job.script: entry for job in jobs if (entry := _known_entry(job, known, out_dir))}
        changed = [job for job in jobs if job.script not in done]
        try:
            rendered = _render_all(changed, out_dir, selection, num_workers)
            for job, entry in zip(changed, watch(rendered, len(changed)), strict=True):
                done[job.script] = entry
        finally:  # an interrupted build goes on where it was
            write_state(
                out_dir, revision, {job.script: (job.stamp, done[job.script]) for job in jobs if job.script in done}
            )
        entries = _among_others([done[job.script] for job in jobs])
        scripts = write_list(out_dir, entries)
        write_page(out_dir, collections, scripts)
        remove_left_overs(out_dir, {entry.page for entry in entries} | set(scripts))
    return ViewerSummary(
        page=out_dir / PAGE_FILE,
        num_attempts=len(entries),
        num_rendered=len(changed),
        num_kept=sum(entry.kept for entry in entries),
        unreadable=[entry.why for entry in entries if entry.outcome == UNREADABLE],
        num_bytes=sum(file.stat().st_size for file in out_dir.rglob("*") if file.is_file()),
        seconds=time.monotonic() - started,
    )


def name_collections(folders: Sequence[Path]) -> dict[str, Path]:
    """Each folder under its own name; a name that occurs twice gets the folder's parents before it.

    Raises UserError for a folder that is no collection.
    """
    named: dict[str, Path] = {}
    for folder in folders:
        if not (folder / TRAJECTORIES_DIR).is_dir():
            raise UserError(f"{folder}: no {TRAJECTORIES_DIR}/ in it; give a folder that `passwright collect` wrote")
        parts = folder.resolve().parts
        if folder.resolve() in {other.resolve() for other in named.values()}:
            continue
        names = [visible("/".join(parts[-length:])) for length in range(1, len(parts) + 1)]
        named[next(name for name in names if name not in named)] = folder
    return named


def load_checked(path: Path) -> Trajectory:
    """One record whose parts fit together. Raises UserError naming the file."""
    trajectory = load_trajectory(path)
    best, num_evaluations = trajectory.best_evaluation, len(trajectory.evaluations)
    if best is not None and not 0 <= best < num_evaluations:
        raise UserError(f"{path}: best_evaluation {best} of {num_evaluations}; restore the file or remove it")
    return trajectory


def _jobs_of(folder: Path, collection: str) -> Iterator[_Job]:
    for path in sorted((folder / TRAJECTORIES_DIR).glob("*.json")):
        if path.name.startswith("."):  # a record that is being written
            continue
        stamp: list[int] = []
        for file in (path, journal_path(path)):
            with contextlib.suppress(FileNotFoundError):  # the journal goes when the attempt ends
                stat = file.stat()
                stamp += [stat.st_mtime_ns, stat.st_size]
        # the file's name is shown, never trusted: only plain characters reach a path or an address of ours
        readable = re.sub(r"[^A-Za-z0-9_.-]", "_", path.stem)[:80]
        digest = hashlib.sha256(os.fsencode(f"{collection}\n{path.name}")).hexdigest()[:12]
        yield _Job(path, collection, f"{ATTEMPTS_DIR}/{readable}-{digest}.js", stamp)


def _known_entry(job: _Job, known: dict[str, Any], out_dir: Path) -> AttemptEntry | None:
    record = known.get(job.script)
    if record is None or record["stamp"] != job.stamp:
        return None
    entry = AttemptEntry.model_validate(record["entry"])
    return entry if not entry.page or (out_dir / entry.page).exists() else None


def _render_all(
    jobs: Sequence[_Job], out_dir: Path, selection: SelectionConfig, num_workers: int | None
) -> Iterator[AttemptEntry]:
    """The entries in the order of the jobs, each page written before its entry comes."""
    wanted = num_workers or min(os.cpu_count() or 1, _MAX_WORKERS, len(jobs) // MIN_ATTEMPTS_A_WORKER)
    if wanted <= 1:
        yield from (_render_one((job, out_dir, selection)) for job in jobs)
        return
    # spawn: the caller may have threads, which a fork would copy in whatever state they are in
    with ProcessPoolExecutor(wanted, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(_render_one, ((job, out_dir, selection) for job in jobs), chunksize=_JOBS_AT_ONCE)


def _render_one(arguments: tuple[_Job, Path, SelectionConfig]) -> AttemptEntry:
    job, out_dir, selection = arguments
    try:
        trajectory = load_checked(job.path)
    except UserError as error:
        return unreadable_entry(job.path, collection=job.collection, reason=str(error))
    try:
        entry = attempt_entry(trajectory, collection=job.collection, page=job.script, selection=selection)
        html = render_attempt(trajectory, key=entry.key)
    except Exception as error:
        error.add_note(f"while rendering {job.path}")
        raise
    write_file(out_dir / job.script, f"passwright.addPage({as_script(job.script)}, {as_script(html)});\n")
    return entry


def _among_others(entries: Sequence[AttemptEntry]) -> list[AttemptEntry]:
    """The entries with what only the whole list can tell: repeats of kept ones are refused, names made unique."""
    seen: set[str] = set()
    keys: set[str] = set()
    listed = []
    for entry in entries:
        changes: dict[str, Any] = {}
        if entry.kept and entry.fingerprint in seen:
            changes = {"kept": False, "why": SAME_CONVERSATION}
        elif entry.kept:
            seen.add(entry.fingerprint)
        if entry.key in keys:
            changes["key"] = next(key for n in range(2, len(entries) + 2) if (key := f"{entry.key} ({n})") not in keys)
        listed.append(entry.model_copy(update=changes) if changes else entry)
        keys.add(listed[-1].key)
    return listed


def _revision(selection: SelectionConfig) -> str:
    """Changes with whatever a page is made by: this package's files, Pygments, the selection."""
    digest = hashlib.sha256(f"{version('pygments')} {selection.model_dump_json()}".encode())
    own = Path(__file__).parent
    others = [own.parent / "record.py", *sorted(own.parent.glob("selection*.py"))]
    for file in [*sorted(own.glob("*.py")), *sorted(TEMPLATES_DIR.iterdir()), *others]:
        digest.update(file.read_bytes())
    return digest.hexdigest()
