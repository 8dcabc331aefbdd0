"""From selected trajectories to a Hugging Face dataset on disk, with its card. Which ones: trajectories/selection.py.

    <out>/README.md                          the card: composition, scores, what was dropped, licence, how to load
    <out>/data/train-00000-of-00001.parquet  one row a trajectory
    <out>/summary.json                       the card's numbers for programs

`load_dataset("<out>")` reads it with nothing of ours installed. The same trajectories and configuration give the same
bytes: rows are ordered by trajectory id and nothing is dated.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

from eval_harness.errors import UserError
from eval_harness.verdict import Verdict
from training.dataset_card import render_card
from trajectories.record import Message, Trajectory
from trajectories.selection import SelectedTrajectory, SelectionConfig, select_trajectories
from trajectories.store import disk_errors, load_trajectories, write_atomically

if TYPE_CHECKING:
    from datasets import Dataset

logger = logging.getLogger(__name__)

DATA_FILE = "data/train-00000-of-00001.parquet"
CARD_FILE = "README.md"
SUMMARY_FILE = "summary.json"


class DatasetConfig(BaseModel):
    """What goes into a dataset."""

    model_config = ConfigDict(extra="forbid")

    name: str = "dataset"
    collections: list[Path] = Field(min_length=1)
    """Folders that `passwright collect` wrote."""
    out: Path | None = None
    """Default: runs/dataset/<name>."""
    selection: SelectionConfig = Field(default_factory=SelectionConfig)

    @property
    def out_dir(self) -> Path:
        return self.out or Path("runs/dataset") / self.name


class DatasetSummary(BaseModel):
    """A dataset's composition, as on its card."""

    model_config = ConfigDict(extra="forbid")

    name: str
    path: str
    num_trajectories: int
    """Looked at."""
    num_rows: int
    """Kept."""
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
    dataset_hash: str
    """sha256 over the rows."""


def build_sft_dataset(config: DatasetConfig, *, overwrite: bool = False) -> DatasetSummary:
    """Select, write rows and card below config.out_dir, and say what was kept.

    Raises UserError: a folder is no collection, nothing is kept, or the place is taken and overwrite is False.
    """
    trajectories = [trajectory for folder in config.collections for trajectory in load_trajectories(folder)]
    selection = select_trajectories(trajectories, config.selection)
    rows = [make_row(selected) for selected in selection.kept]
    rows.sort(key=lambda row: (row["trajectory_id"], row["row_hash"]))
    refusals = dict(sorted(selection.refused.items(), key=lambda item: (-item[1], item[0])))
    if not rows:
        reasons = ", ".join(f"{reason}: {count}" for reason, count in refusals.items()) or "there are none"
        raise UserError(
            f"{', '.join(map(str, config.collections))}: none of {len(trajectories)} trajectories is kept ({reasons}); "
            "collect more, or relax `selection`"
        )
    out_dir = config.out_dir
    summary = _summarize(config, rows, refusals, len(trajectories))
    _clear(out_dir, overwrite=overwrite)
    with disk_errors(out_dir):
        (out_dir / DATA_FILE).parent.mkdir(parents=True, exist_ok=True)
        to_dataset(rows).to_parquet(str(out_dir / DATA_FILE))
    card = render_card(summary.model_dump(), config.model_dump(mode="json", exclude={"out"}))
    write_atomically(out_dir / CARD_FILE, card)
    write_atomically(out_dir / SUMMARY_FILE, json.dumps(summary.model_dump(), indent=1) + "\n")
    logger.info("%s: %d rows of %d trajectories", out_dir, len(rows), len(trajectories))
    return summary


def make_row(selected: SelectedTrajectory) -> dict[str, Any]:
    """One row: the conversation as chat templates take it, the tools, and where it comes from."""
    trajectory, messages = selected.trajectory, selected.messages
    verdict = _deciding_verdict(trajectory)
    openai_messages = [_template_message(message) for message in messages]
    tools = json.dumps(trajectory.tools, ensure_ascii=False)
    digest = hashlib.sha256(json.dumps([openai_messages, tools], ensure_ascii=False, sort_keys=True).encode())
    policy = trajectory.policy
    return {
        "messages": openai_messages,
        "tools": tools,
        "task_id": trajectory.task_id,
        "trajectory_id": trajectory.trajectory_id,
        "attempt_index": trajectory.attempt_index,
        "policy": str(policy.get("kind", "unknown")),
        "teacher": str(policy.get("model") or policy.get("kind", "unknown")),
        "license": str(policy.get("license") or policy.get("licence") or "unknown"),
        "agent": trajectory.agent,
        "device": trajectory.device,
        "protocol": verdict.protocol,
        "as_score": selected.as_score,
        "as_covered": selected.as_covered,
        "num_graphs": len(verdict.graphs),
        "num_correct_graphs": verdict.num_correct,
        "num_turns": sum(message.role == "assistant" for message in messages),
        "stop_reason": str(trajectory.stop_reason or ""),
        "cut_reason": selected.cut_reason,
        "task_hash": trajectory.task_hash,
        "candidate_hash": verdict.candidate_hash,
        "row_hash": digest.hexdigest(),
    }


def to_dataset(rows: Sequence[dict[str, Any]]) -> Dataset:
    """Arrow rows. Tool arguments differ in their keys from call to call, so messages are JSON inside: exact."""
    from datasets import Dataset

    return Dataset.from_list(list(rows), on_mixed_types="use_json")


def load_sft_dataset(path: Path | str) -> Dataset:
    """The rows of a dataset folder, read where they lie: no cache is written, so a rebuilt folder is never stale.

    Also takes what Dataset.save_to_disk wrote. Raises UserError.
    """
    import pyarrow.parquet
    from datasets import Dataset, concatenate_datasets, load_from_disk
    from datasets.table import InMemoryTable

    root = Path(path)
    if (root / "dataset_info.json").is_file():
        dataset = load_from_disk(str(root))
    else:
        files = sorted(root.glob("data/train-*.parquet"))
        if not files:
            raise UserError(f"{root}: no data/train-*.parquet; give the folder that `passwright dataset build` wrote")
        try:
            tables = [pyarrow.parquet.read_table(file) for file in files]
        except (OSError, pyarrow.ArrowInvalid) as error:
            reason = " ".join(str(error).split())
            raise UserError(f"{root}: cannot be read ({reason}); build the dataset again") from None
        dataset = concatenate_datasets([Dataset(InMemoryTable(table)) for table in tables])
    if "messages" not in dataset.column_names:
        raise UserError(f"{root}: no `messages` column; this is not a dataset of conversations")
    return dataset


def _template_message(message: Message) -> dict[str, Any]:
    """OpenAI's form with arguments as an object, which every chat template takes; malformed ones stay text."""
    row = message.to_openai()
    for call in row.get("tool_calls", []):
        try:
            arguments = json.loads(call["function"]["arguments"] or "{}")
        except ValueError:
            continue
        if isinstance(arguments, dict):
            call["function"]["arguments"] = arguments
    return row


def _deciding_verdict(trajectory: Trajectory) -> Verdict:
    """The fresh strict evaluation; where there is none, the best feedback verdict."""
    if trajectory.final_verdict is not None:
        return trajectory.final_verdict
    assert trajectory.best_evaluation is not None, "selection keeps evaluated trajectories only"
    return trajectory.evaluations[trajectory.best_evaluation].verdict


def _summarize(
    config: DatasetConfig, rows: Sequence[dict[str, Any]], refusals: dict[str, int], num_trajectories: int
) -> DatasetSummary:
    digest = hashlib.sha256("\n".join(row["row_hash"] for row in rows).encode())
    return DatasetSummary(
        name=config.name,
        path=str(config.out_dir),
        num_trajectories=num_trajectories,
        num_rows=len(rows),
        num_tasks=len({row["task_id"] for row in rows}),
        refusals=refusals,
        as_scores=sorted(row["as_score"] for row in rows),
        as_covered=sorted(row["as_covered"] for row in rows),
        num_turns=sum(row["num_turns"] for row in rows),
        rows_by_policy=dict(Counter(row["teacher"] for row in rows).most_common()),
        rows_by_license=dict(Counter(row["license"] for row in rows).most_common()),
        dataset_hash=digest.hexdigest(),
    )


def _clear(out_dir: Path, *, overwrite: bool) -> None:
    """Make place for the dataset; only a dataset of ours is ever removed."""
    if not out_dir.exists() or not any(out_dir.iterdir()):
        return
    if not (out_dir / SUMMARY_FILE).is_file() or not (out_dir / "data").is_dir():
        raise UserError(f"{out_dir}: is not empty and holds no dataset; choose another --out")
    if not overwrite:
        raise UserError(f"{out_dir}: holds a dataset already; choose another --out, or build again with --no-resume")
    for item in (out_dir / "data", out_dir / SUMMARY_FILE, out_dir / CARD_FILE):
        shutil.rmtree(item) if item.is_dir() else item.unlink(missing_ok=True)
