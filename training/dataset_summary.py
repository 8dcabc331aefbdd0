"""DatasetSummary: the composition of a dataset, as on its card and in summary.json, added up row by row."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict

from training.contamination_policy import ContaminationSummary
from training.dataset_config import DatasetConfig
from training.dataset_lengths import LengthSummary, summarize_lengths
from training.dataset_workers import MadeRow, RecordDigest
from training.teachers import TeacherSummary, TeacherTally


class CollectionSummary(BaseModel):
    """Where rows come from."""

    model_config = ConfigDict(extra="forbid")

    name: str
    """Its folder's."""
    config_hash: str
    """Of the collection's configuration and tasks; "" if it has no manifest."""
    num_trajectories: int
    records_hash: str
    """sha256 over the hashes of its records."""
    versions: dict[str, list[str]]
    """Library -> versions that the records name."""


class DatasetSummary(BaseModel):
    """A dataset's composition, as on its card."""

    model_config = ConfigDict(extra="forbid")

    name: str
    path: str
    format: str = "parquet"
    num_trajectories: int
    """Looked at."""
    num_rows: int
    """Kept, over all splits."""
    num_tasks: int
    """With at least one row."""
    refusals: dict[str, int]
    """Reason -> trajectories dropped for it, most frequent first."""
    as_scores: list[float]
    """Of the kept rows, ascending: what the selection went by."""
    as_covered: list[float]
    num_turns: int
    """Assistant messages in all rows."""
    rows_by_policy: dict[str, int]
    rows_by_license: dict[str, int]
    teachers: list[TeacherSummary] = []
    """Of all trajectories looked at, the one with most rows first."""
    splits: dict[str, int] = {}
    """Split -> rows."""
    files: list[str] = []
    """Below the dataset's folder."""
    num_text_bytes: int = 0
    """Of messages and tools."""
    num_reasoning_left_out: int = 0
    """Turns whose reasoning the format has no place for."""
    lengths: LengthSummary | None = None
    """In the student's tokens; None when no tokenizer was given."""
    contamination: ContaminationSummary | None = None
    """None when no evaluation tasks were given."""
    collections: list[CollectionSummary] = []
    dataset_hash: str
    """sha256 over the rows."""


class SummaryTally:
    """Adds up what a summary says: every record that was looked at, then every row in the order of the dataset."""

    def __init__(self, records: Sequence[RecordDigest]) -> None:
        self._teachers = TeacherTally()
        for record in records:
            self._teachers.saw(record.teacher, record.model)
        self._num_records = len(records)
        self._by_teacher: Counter[str] = Counter()
        self._by_license: Counter[str] = Counter()
        self._splits: Counter[str] = Counter()
        self._tasks: set[str] = set()
        self._scores: list[tuple[float, float]] = []
        self._lengths: list[tuple[int, int]] = []
        self._hashes: list[str] = []
        self._num_turns = self._num_bytes = self._num_reasoning = 0

    def add(self, row: MadeRow, split: str) -> None:
        columns = row.columns
        self._teachers.kept(columns)
        self._by_teacher[columns["teacher"]] += 1
        self._by_license[columns["license"]] += 1
        self._splits[split] += 1
        self._tasks.add(columns["task_id"])
        self._scores.append((columns["as_score"], columns["as_covered"]))
        self._hashes.append(columns["row_hash"])
        self._num_turns += columns["num_turns"]
        self._num_bytes += row.num_bytes
        self._num_reasoning += row.num_reasoning
        if "num_tokens" in columns:
            self._lengths.append((columns["num_tokens"], columns["num_trained_tokens"]))

    def finish(
        self,
        config: DatasetConfig,
        *,
        refusals: Mapping[str, int],
        files: Sequence[str],
        contamination: ContaminationSummary | None,
        collections: Sequence[CollectionSummary],
    ) -> DatasetSummary:
        """The summary; at least one row was added."""
        lengths = None
        if config.tokenizer is not None:
            lengths = summarize_lengths(config.tokenizer, self._lengths)
        return DatasetSummary(
            name=config.name,
            path=str(config.out_dir),
            format=config.format,
            num_trajectories=self._num_records,
            num_rows=len(self._hashes),
            num_tasks=len(self._tasks),
            refusals=dict(sorted(refusals.items(), key=lambda item: (-item[1], item[0]))),
            as_scores=sorted(score for score, _ in self._scores),
            as_covered=sorted(covered for _, covered in self._scores),
            num_turns=self._num_turns,
            rows_by_policy=dict(self._by_teacher.most_common()),
            rows_by_license=dict(self._by_license.most_common()),
            teachers=self._teachers.summaries(),
            splits=dict(sorted(self._splits.items())),
            files=list(files),
            num_text_bytes=self._num_bytes,
            num_reasoning_left_out=self._num_reasoning if config.format == "openai-jsonl" else 0,
            lengths=lengths,
            contamination=contamination,
            collections=list(collections),
            dataset_hash=hashlib.sha256("\n".join(self._hashes).encode()).hexdigest(),
        )


def summarize_collections(
    names: Sequence[str], config_hashes: Sequence[str], records: Sequence[RecordDigest]
) -> list[CollectionSummary]:
    """One entry a collection, by name, so that the order in which they are given makes no difference."""
    members: dict[int, list[RecordDigest]] = defaultdict(list)
    for record in records:
        members[record.collection].append(record)
    found = []
    for number, (name, config_hash) in enumerate(zip(names, config_hashes, strict=True)):
        versions: dict[str, set[str]] = defaultdict(set)
        for record in members[number]:
            for library, version in record.versions:
                versions[library].add(version)
        hashes = sorted(record.sha256 for record in members[number])
        found.append(
            CollectionSummary(
                name=name,
                config_hash=config_hash,
                num_trajectories=len(members[number]),
                records_hash=hashlib.sha256("\n".join(hashes).encode()).hexdigest(),
                versions={library: sorted(seen) for library, seen in sorted(versions.items())},
            )
        )
    return sorted(found, key=lambda entry: (entry.name, entry.records_hash))
