"""From selected trajectories to a Hugging Face dataset on disk, with its card. Which ones: trajectories/selection.py.

    <out>/README.md                          the card: composition, scores, what was dropped, licence, how to load
    <out>/data/train-00000-of-0000N.parquet  one row a trajectory; validation-* if a share of the tasks is held out
    <out>/summary.json                       the card's numbers for programs

records -> digest of each -> contamination -> choice -> rows of the kept ones -> files. Records are read twice, so that
no more than a few are in memory. `load_dataset("<out>")` reads the result with nothing of ours installed. The same
trajectories and configuration give the same bytes: rows are ordered by trajectory id and nothing is dated.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tqdm import tqdm

from eval_harness.errors import UserError
from training.contamination import build_eval_index
from training.contamination_policy import ContaminationSummary, refs_of, settle_contamination
from training.dataset_card import render_card
from training.dataset_config import DatasetConfig
from training.dataset_files import CARD_FILE, DatasetFolder, check_place, check_readable, data_file
from training.dataset_lengths import TokenCounter
from training.dataset_rows import rows_schema
from training.dataset_summary import CollectionSummary, DatasetSummary, SummaryTally, summarize_collections
from training.dataset_workers import RecordDigest, Work, Workers, digest_record, make_record_row
from trajectories.selection_choice import choose
from trajectories.store import TRAJECTORIES_DIR, TrajectoryStore

if TYPE_CHECKING:
    from datasets import Dataset

__all__ = ["CARD_FILE", "DATA_FILE", "DatasetConfig", "DatasetSummary", "build_sft_dataset", "load_sft_dataset"]

logger = logging.getLogger(__name__)

DATA_FILE = data_file("train", 0, 1, "parquet")
"""Of a dataset that fits in one file."""
TRAIN, VALIDATION = "train", "validation"
Item = TypeVar("Item")


def build_sft_dataset(config: DatasetConfig, *, overwrite: bool = False, show_progress: bool = False) -> DatasetSummary:
    """Select, write rows and card below config.out_dir, and say what was kept.

    Raises UserError: a folder is no collection, a record cannot be read, evaluation tasks would be trained on, nothing
    is kept, or the place is taken and overwrite is False. What was there before is then still there.
    """
    check_place(config.out_dir, overwrite=overwrite)
    if config.tokenizer is not None:
        TokenCounter(config.tokenizer, config.chat_template).load()  # before minutes of reading, not after
    stores = collection_stores(config.collections)
    paths = [(path, number) for number, store in enumerate(stores) for path in store.record_paths()]
    index = build_eval_index(config.eval_tasks, config.code_overlap) if config.eval_tasks else None
    as_openai = config.format == "openai-jsonl"
    work = Work(config.selection, index, config.tokenizer, config.chat_template, as_openai)
    with Workers(work, config.num_workers, len(paths)) as workers:
        records = list(watch(workers.map(digest_record, paths), len(paths), "read", show_progress))
        # by content: neither the order of the collections nor that of the files decides anything
        records.sort(key=lambda record: (record.trajectory_id, record.sha256))
        contamination: ContaminationSummary | None = None
        if index is not None:
            manifests = [manifest_of(store) for store in stores]
            records, contamination = settle_contamination(records, config, index, [refs_of(each) for each in manifests])
        choice = choose([record.selection for record in records], config.selection)
        kept = [records[number] for number in sorted(choice.kept)]
        if not kept:
            reasons = ", ".join(f"{reason}: {count}" for reason, count in choice.refused.most_common())
            raise UserError(
                f"{', '.join(map(str, config.collections))}: none of {len(records)} trajectories is kept "
                f"({reasons or 'there are none'}); collect more, or relax `selection`"
            )
        tally = SummaryTally(records)
        held_out = validation_tasks({record.task_id for record in kept}, config.eval_share)
        schema = None if as_openai else rows_schema(with_tokens=config.tokenizer is not None)
        splits = (TRAIN, VALIDATION) if held_out else (TRAIN,)
        with DatasetFolder(config.out_dir, overwrite=overwrite) as folder:
            shard_bytes = config.shard_mb * (1 << 20)
            writers = {split: folder.writer(split, schema=schema, shard_bytes=shard_bytes) for split in splits}
            rows = workers.map(make_record_row, [(record.path, record.sha256) for record in kept])
            for record, row in zip(kept, watch(rows, len(kept), "write", show_progress), strict=True):
                split = VALIDATION if record.task_id in held_out else TRAIN
                writers[split].add(row.columns, row.line, row.num_bytes)
                tally.add(row, split)
            files = [name for split in splits for name in writers[split].close()]
            summary = tally.finish(
                config,
                refusals=choice.refused,
                files=files,
                contamination=contamination,
                collections=describe_collections(stores, records),
            )
            card = render_card(summary, config)
            folder.finish(card=card, summary=json.dumps(summary.model_dump(), indent=1) + "\n")
    logger.info("%s: %d rows of %d trajectories", config.out_dir, summary.num_rows, len(records))
    return summary


def validation_tasks(task_ids: Iterable[str], share: float) -> set[str]:
    """The tasks whose hash lies in the share; at least one of two or more if share is above 0, and never all."""
    by_hash = sorted((hashlib.sha256(task_id.encode("utf-8", "replace")).digest(), task_id) for task_id in task_ids)
    if share <= 0 or len(by_hash) < 2:
        return set()
    bound = int(share * 2**64)
    found = [task_id for digest, task_id in by_hash if int.from_bytes(digest[:8], "big") < bound]
    return set((found or [by_hash[0][1]])[: len(by_hash) - 1])


def load_sft_dataset(path: Path | str, split: str = TRAIN, *, column: str = "messages") -> Dataset:
    """The rows of a dataset folder, read where they lie: no cache is written, so a rebuilt folder is never stale.

    Also takes what Dataset.save_to_disk wrote. column: one that must be there. Raises UserError.
    """
    import pyarrow.parquet
    from datasets import Dataset, concatenate_datasets, load_from_disk
    from datasets.table import InMemoryTable

    root = Path(path)
    check_readable(root)
    if (root / "dataset_info.json").is_file():
        dataset = load_from_disk(str(root))
    else:
        files = sorted(root.glob(f"data/{split}-*.parquet"))
        if not files and (splits := sorted({file.name.partition("-")[0] for file in root.glob("data/*-*.parquet")})):
            raise UserError(f"{root}: no split {split!r}; it has {', '.join(splits)}")
        if not files:
            raise UserError(f"{root}: no data/{split}-*.parquet; give the folder that `passwright dataset build` wrote")
        try:
            tables = [pyarrow.parquet.read_table(file) for file in files]
        except (OSError, pyarrow.ArrowInvalid) as error:
            reason = " ".join(str(error).split())
            raise UserError(f"{root}: cannot be read ({reason}); build the dataset again") from None
        dataset = concatenate_datasets([Dataset(InMemoryTable(table)) for table in tables])
    if column not in dataset.column_names:
        raise UserError(f"{root}: no `{column}` column; this is not a dataset of conversations")
    return dataset


def collection_stores(folders: Sequence[Path]) -> list[TrajectoryStore]:
    """The collections. Raises UserError for a folder that is none, or that is named twice."""
    seen: set[Path] = set()
    for folder in folders:
        try:
            next((folder / TRAJECTORIES_DIR).iterdir(), None)  # a glob finds nothing where nothing can be read
        except (FileNotFoundError, NotADirectoryError):
            where = "give the folder that `passwright collect` wrote"
            raise UserError(f"{folder}: no {TRAJECTORIES_DIR}/ in it; {where}") from None
        except OSError as error:
            raise UserError(f"{folder}: cannot be read ({error.strerror}); ask its owner, or copy it") from None
        if folder.resolve() in seen:
            raise UserError(f"{folder}: named twice; name each collection once")
        seen.add(folder.resolve())
    return [TrajectoryStore(folder) for folder in folders]


def manifest_of(store: TrajectoryStore) -> dict[str, Any]:
    """The collection's manifest; {} where records were put together without one."""
    return store.manifest if (store.root / "manifest.json").is_file() else {}


def describe_collections(stores: Sequence[TrajectoryStore], records: Sequence[RecordDigest]) -> list[CollectionSummary]:
    """Where a dataset comes from, collection by collection."""
    hashes = [str(manifest_of(store).get("config_hash", "")) for store in stores]
    return summarize_collections([store.root.resolve().name for store in stores], hashes, records)


def watch(items: Iterable[Item], total: int, what: str, show: bool) -> Iterable[Item]:
    """With a bar, where a person watches."""
    return tqdm(items, total=total, desc=what, unit="record", leave=False, disable=None if show else True)
