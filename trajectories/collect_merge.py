"""merge_collections: the folders of a collection's shards -> one folder, which reads and goes on like any other."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from eval_harness.errors import UserError
from trajectories.collect_index import AttemptIndex
from trajectories.collect_summary import CollectSummary, costs
from trajectories.collect_text import summarise_run
from trajectories.journal import journal_path
from trajectories.ledger import Ledger
from trajectories.progress import PROGRESS_FILE
from trajectories.store import LEDGER_FILE, MANIFEST_FILE, TRAJECTORIES_DIR, TrajectoryStore
from trajectories.store_files import disk_errors, write_atomically

logger = logging.getLogger(__name__)


def merge_collections(folders: Sequence[Path], out: Path) -> CollectSummary:
    """Copy the shards together and write the summary of the whole. The shards stay as they are.

    Raises UserError before anything is written: the folders are not shards of one collection, two of them hold the
    same attempt, one is being collected into, or out is taken.
    """
    stores = [TrajectoryStore(folder) for folder in folders]
    manifests = [store.manifest for store in stores]
    _check(folders, manifests, out)
    _check_disjoint(stores)
    if missing := _missing_shards(manifests):
        logger.warning(
            "not among the folders: shard %s; going on in %s without --shard makes its attempts, perhaps again",
            ", ".join(missing), out,
        )  # fmt: skip
    for store in stores:  # nothing may be written meanwhile
        store.lock()
    try:
        with disk_errors(out):
            (out / TRAJECTORIES_DIR).mkdir(parents=True)
            for store in stores:
                _copy_records(store, out)
            for name in (LEDGER_FILE, PROGRESS_FILE):
                _join_lines([folder / name for folder in folders], out / name)
    finally:
        for store in stores:
            store.close()
    merged = TrajectoryStore(out)
    manifest = manifests[0] | {
        "shard": None,
        "merged_from": [
            {"folder": str(folder), "shard": each.get("shard")} for folder, each in _zip(folders, manifests)
        ],
        "merged_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    index = AttemptIndex(merged)
    index.save()
    # last: what has no manifest is no collection, so a merge that was broken off is seen
    write_atomically(out / MANIFEST_FILE, json.dumps(manifest, indent=1, ensure_ascii=False))
    summary = summarise_run(out)
    merged.write_summary(summary.model_dump(mode="json"), costs(list(index.rows.values()), Ledger(out / LEDGER_FILE)))
    return summary


def _check(folders: Sequence[Path], manifests: Sequence[dict[str, Any]], out: Path) -> None:
    if out.exists():
        raise UserError(f"{out}: is there already; give --out a folder that is not")
    for folder, manifest in _zip(folders, manifests):
        if manifest.get("config_hash") != manifests[0].get("config_hash"):
            raise UserError(f"{folder}: is no shard of the same collection as {folders[0]}; leave one of them out")


def _missing_shards(manifests: Sequence[dict[str, Any]]) -> list[str]:
    given = [str(manifest["shard"]) for manifest in manifests if manifest.get("shard")]
    counts = {int(shard.split("/")[1]) for shard in given}
    return [shard for n in counts for i in range(1, n + 1) if (shard := f"{i}/{n}") not in given and len(counts) == 1]


def _check_disjoint(stores: Sequence[TrajectoryStore]) -> None:
    seen: dict[str, Path] = {}
    for store in stores:
        for path in store.record_paths():
            if path.name in seen:
                raise UserError(f"{path}: {seen[path.name]} holds the same attempt; remove one of them")
            seen[path.name] = path


def _copy_records(store: TrajectoryStore, out: Path) -> None:
    for path in store.record_paths():
        for source in (path, journal_path(path)):
            if source.exists():
                shutil.copy2(source, out / TRAJECTORIES_DIR / source.name)


def _join_lines(sources: Sequence[Path], target: Path) -> None:
    with target.open("w", encoding="utf-8") as file:
        for source in sources:
            text = source.read_text(encoding="utf-8") if source.exists() else ""
            file.write(text + "\n" * (bool(text) and not text.endswith("\n")))


def _zip(folders: Sequence[Path], manifests: Sequence[dict[str, Any]]) -> list[tuple[Path, dict[str, Any]]]:
    return list(zip(folders, manifests, strict=True))
