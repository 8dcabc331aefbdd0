"""`dataset build --kind candidates | candidate-sft | preferences | verifier`: candidates of collections as a dataset.

    records -> contamination -> candidates, none twice -> rows by kind -> files, with the card of every dataset

Beside sft_dataset.py, which makes rows of whole conversations; card, folder, contamination check and summary are
shared.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eval_harness.errors import UserError
from training.candidate_rows import (
    FLOAT_COLUMNS,
    INTEGER_COLUMNS,
    TEXT_COLUMNS,
    CandidateRecord,
    candidate_row,
    candidates_of,
    conversation_columns,
    imitation,
    preference_pairs,
    preference_row,
    verifier_rows,
)
from training.contamination import EvalIndex, Findings, build_eval_index
from training.contamination_policy import ContaminationSummary, refs_of, settle_contamination
from training.dataset_card import render_card
from training.dataset_config import DatasetConfig
from training.dataset_files import DatasetFolder, check_place
from training.dataset_rows import encode_json_messages, rows_schema, template_message
from training.dataset_summary import DatasetSummary, SummaryTally
from training.dataset_workers import MadeRow, RecordDigest, load_record
from training.sft_dataset import (
    TRAIN,
    VALIDATION,
    collection_stores,
    describe_collections,
    manifest_of,
    validation_tasks,
    watch,
)
from training.teachers import teacher_identity
from trajectories.ledger import teacher_of
from trajectories.selection_choice import TrajectoryDigest
from trajectories.store import is_finished

if TYPE_CHECKING:
    import pyarrow

SAME_FILES = "the same files as an earlier candidate of the task"
NOT_IMITATED = "wrong, slower than what its request showed, or no answer to a request"
MESSAGE_COLUMNS = ("messages", "prompt", "chosen", "rejected")


def build_candidate_dataset(
    config: DatasetConfig, *, overwrite: bool = False, show_progress: bool = False
) -> DatasetSummary:
    """Write the rows of config.kind and their card below config.out_dir. Raises UserError as build_sft_dataset does."""
    check_place(config.out_dir, overwrite=overwrite)
    if config.format != "parquet" or config.tokenizer is not None:
        raise UserError(f"kind={config.kind}: is Parquet and counts no tokens; leave format and tokenizer out")
    stores = collection_stores(config.collections)
    paths = [(path, number) for number, store in enumerate(stores) for path in store.record_paths()]
    index = build_eval_index(config.eval_tasks, config.code_overlap) if config.eval_tasks else None
    digests = [_digest(path, number, index) for path, number in watch(paths, len(paths), "read", show_progress)]
    digests.sort(key=lambda digest: (digest.trajectory_id, digest.sha256))
    contamination: ContaminationSummary | None = None
    if index is not None:
        refs = [refs_of(manifest_of(store)) for store in stores]
        digests, contamination = settle_contamination(digests, config, index, refs)
    refusals: Counter[str] = Counter(d.selection.refusal for d in digests if d.selection.refusal is not None)
    kept = [digest for digest in digests if digest.selection.refusal is None]
    rows = list(_rows(config, watch(kept, len(kept), "candidates", show_progress), refusals))
    if not rows:
        reasons = ", ".join(f"{reason}: {count}" for reason, count in refusals.most_common())
        raise UserError(
            f"{', '.join(map(str, config.collections))}: no row of kind {config.kind} comes of {len(digests)} "
            f"trajectories ({reasons or 'there are none'}); collect with a search (--agent evolve), or choose another "
            "kind"
        )
    tally = SummaryTally(digests)
    held_out = validation_tasks({row.columns["task_id"] for row in rows}, config.eval_share)
    schema = candidate_schema(config.kind)
    splits = (TRAIN, VALIDATION) if held_out else (TRAIN,)
    with DatasetFolder(config.out_dir, overwrite=overwrite) as folder:
        shard_bytes = config.shard_mb * (1 << 20)
        writers = {split: folder.writer(split, schema=schema, shard_bytes=shard_bytes) for split in splits}
        for row in rows:
            split = VALIDATION if row.columns["task_id"] in held_out else TRAIN
            writers[split].add(row.columns, None, row.num_bytes)
            tally.add(row, split)
        files = [name for split in splits for name in writers[split].close()]
        summary = tally.finish(
            config,
            refusals=refusals,
            files=files,
            contamination=contamination,
            collections=describe_collections(stores, digests),
        )
        folder.finish(card=render_card(summary, config), summary=json.dumps(summary.model_dump(), indent=1) + "\n")
    return summary


def candidate_schema(kind: str) -> pyarrow.Schema:
    """Arrow schema of a kind's rows, with the note by which `datasets` knows its features."""
    from datasets import Features, Json, List, Value

    if kind == "candidate-sft":
        return rows_schema(with_tokens=False)
    if kind == "verifier":
        return rows_schema(with_tokens=False, more_text=("aspect", "label"))
    if kind == "candidates":
        names: dict[str, Any] = {name: Value("string") for name in TEXT_COLUMNS}
        names |= {name: Value("int64") for name in INTEGER_COLUMNS} | {name: Value("float64") for name in FLOAT_COLUMNS}
        names["parents"] = List(Value("int64"))
    else:
        about = ("task_id", "task_hash", "trajectory_id", "agent", "policy", "teacher", "license", "terms", "device")
        names = {name: List(Json()) for name in ("prompt", "chosen", "rejected")}
        names |= {name: Value("string") for name in (*about, "protocol", "tools", "outcome_rejected", "row_hash")}
        names |= {name: Value("float64") for name in (*FLOAT_COLUMNS, "as_covered_rejected")}
        names["attempt_index"] = Value("int64")
    return Features(names).arrow_schema


def _digest(path: Path, collection: int, index: EvalIndex | None) -> RecordDigest:
    """Pass 1: a finished record is good by itself. Raises UserError for one that cannot be read."""
    trajectory, sha256 = load_record(path)
    refusal = None if is_finished(trajectory) else f"not finished ({trajectory.stop_reason or 'interrupted'})"
    findings = index.look_up(trajectory) if index is not None and refusal is None else Findings()
    return RecordDigest(
        path,
        collection,
        trajectory.trajectory_id,
        trajectory.task_id,
        trajectory.task_hash,
        sha256,
        teacher_identity(trajectory.policy),
        str(trajectory.policy.get("model") or ""),
        tuple(sorted(trajectory.versions.items())),
        TrajectoryDigest(trajectory.task_id, teacher_of(trajectory.policy), refusal),
        findings,
    )


def _rows(config: DatasetConfig, kept: Any, refusals: Counter[str]) -> Iterator[MadeRow]:
    """Rows in the order of the records; candidates of equal files count once a task."""
    seen: set[str] = set()
    tasks: dict[str, list[CandidateRecord]] = defaultdict(list)
    for digest in kept:
        trajectory, sha256 = load_record(digest.path)
        if sha256 != digest.sha256:
            raise UserError(f"{digest.path}: changed while the dataset was being built; build again when it is whole")
        records = list(candidates_of(trajectory))
        by_id = {record.entry.id: record for record in records}
        for record in records:
            if record.key in seen:
                refusals[SAME_FILES] += 1
                continue
            seen.add(record.key)
            if config.kind == "preferences":
                tasks[trajectory.task_hash].append(record)
            elif config.kind == "candidates":
                yield _made(candidate_row(record))
            elif config.kind == "verifier":
                yield from map(_made, verifier_rows(record))
            else:
                parents = [by_id[number] for number in record.entry.parents if number in by_id]
                yield from _imitated(record, parents, refusals)
    for of_task in tasks.values():
        for better, worse in preference_pairs(
            of_task, margin=config.preference_margin, max_pairs=config.max_pairs_per_task
        ):
            if (row := preference_row(better, worse)) is not None:
                yield _made(row)


def _imitated(record: CandidateRecord, parents: Sequence[CandidateRecord], refusals: Counter[str]) -> Iterator[MadeRow]:
    messages = imitation(record, parents)
    if messages is None:
        refusals[NOT_IMITATED] += 1
        return
    without = not messages[-1].reasoning
    yield _made(
        {
            **conversation_columns(record),
            "messages": [template_message(message) for message in messages],
            "tools": json.dumps(record.trajectory.tools, ensure_ascii=False),
            "num_without_reasoning": int(without),
            "untrained_turns": [0] if messages[-1].reasoning_policy == "dropped" else [],
        }
    )


def _made(row: dict[str, Any]) -> MadeRow:
    # a candidate has a column `rejected` of another kind: why it was not judged
    messages = [name for name in MESSAGE_COLUMNS if isinstance(row.get(name), list)]
    encoded = {name: encode_json_messages(row[name]) for name in messages}
    columns = {"num_without_reasoning": 0, "untrained_turns": [], **row, **encoded}
    texts = [text for value in encoded.values() for text in value] + [v for v in row.values() if isinstance(v, str)]
    return MadeRow(columns, None, sum(len(text.encode("utf-8", "replace")) for text in texts), 0)
