"""The viewer's folder: its files, each written whole or not at all. What stands in them: viewer.py."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eval_harness.errors import UserError
from trajectories.pages.attempt_entry import AttemptEntry
from trajectories.pages.render import render_page
from trajectories.store import SUMMARY_FILE

ASSETS_SOURCE = Path(__file__).parent / "assets"
PAGE_FILE = "index.html"
STATE_FILE = "build.json"
ASSETS_DIR, ATTEMPTS_DIR, DATA_DIR = "assets", "attempts", "data"
ENTRIES_A_FILE = 1_000
_NUM_NAMED = 3
"""Collections that a title names; more are counted."""


def open_folder(out_dir: Path) -> dict[str, Any]:
    """What was built there before; {} where nothing was. Raises UserError for a folder with other things in it."""
    state = out_dir / STATE_FILE
    if not state.exists() and out_dir.exists() and (not out_dir.is_dir() or any(out_dir.iterdir())):
        raise UserError(
            f"{out_dir}: holds something else; give --out a new folder, or one that `passwright view` wrote"
        )
    for folder in (ASSETS_DIR, ATTEMPTS_DIR, DATA_DIR):
        (out_dir / folder).mkdir(parents=True, exist_ok=True)
    if not state.exists():
        write_state(out_dir, "", {})  # so that an interrupted build is known as ours
    try:
        earlier = json.loads(state.read_text(encoding="utf-8"))
        return earlier if isinstance(earlier, dict) else {}
    except ValueError:
        return {}


def write_state(out_dir: Path, revision: str, attempts: Mapping[str, tuple[list[int], AttemptEntry]]) -> None:
    """Remember what was rendered: script -> its record's stamp and its entry."""
    known = {
        script: {"stamp": stamp, "entry": entry.model_dump(mode="json", exclude_defaults=True)}
        for script, (stamp, entry) in attempts.items()
    }
    write_file(out_dir / STATE_FILE, json.dumps({"revision": revision, "attempts": known}))


def write_list(out_dir: Path, entries: Sequence[AttemptEntry]) -> list[str]:
    """The list as scripts; their names relative to the page."""
    scripts = []
    for start in range(0, len(entries), ENTRIES_A_FILE):
        records = [
            entry.model_dump(mode="json", exclude_defaults=True, exclude={"fingerprint"})
            | {"outcome": entry.outcome, "why": entry.why}
            for entry in entries[start : start + ENTRIES_A_FILE]
        ]
        lines = ",\n".join(as_script(record) for record in records)
        scripts.append(f"{DATA_DIR}/list-{start // ENTRIES_A_FILE:03d}.js")
        write_file(out_dir / scripts[-1], f"passwright.addEntries([\n{lines}\n]);\n")
    return scripts


def write_page(out_dir: Path, collections: Mapping[str, Path], scripts: Sequence[str]) -> None:
    """The page, its style and its own scripts."""
    title = ", ".join(collections) if len(collections) <= _NUM_NAMED else f"{len(collections)} collections"
    facts = [_facts_of(name, folder) for name, folder in collections.items()]
    for asset in ASSETS_SOURCE.glob("*.js"):
        write_file(out_dir / ASSETS_DIR / asset.name, asset.read_text(encoding="utf-8"))
    styles = [(ASSETS_SOURCE / name).read_text(encoding="utf-8") for name in ("shared.css", "viewer.css")]
    write_file(out_dir / ASSETS_DIR / "viewer.css", "\n".join([render_page("style.css.j2"), *styles]))
    page = render_page("viewer.html.j2", title=f"Attempts: {title}", collections=facts, data=scripts)
    write_file(out_dir / PAGE_FILE, page)


def remove_left_overs(out_dir: Path, wanted: set[str]) -> None:
    """Scripts of attempts that are no longer there."""
    for folder in (ATTEMPTS_DIR, DATA_DIR):
        for file in (out_dir / folder).iterdir():
            if f"{folder}/{file.name}" not in wanted:
                file.unlink()


def as_script(value: Any) -> str:
    """JSON that is a JavaScript value too: no half characters, and no line ends that only JavaScript knows."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return re.sub("[\u2028\u2029\ud800-\udfff]", lambda match: f"\\u{ord(match[0]):04x}", text)


def write_file(path: Path, text: str) -> None:
    """Whole or not at all; not synced: a page can be built again."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def _facts_of(name: str, folder: Path) -> str:
    """A collection in a few words, from its summary; the name alone while there is none."""
    try:
        summary = json.loads((folder / SUMMARY_FILE).read_text(encoding="utf-8"))
        return f"{name}: {summary['num_finished']} of {summary['num_planned']} finished, {summary['spent_usd']:.2f} USD"
    except (OSError, ValueError, KeyError, TypeError):
        return name
