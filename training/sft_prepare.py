"""What every process of a run reads before it trains: rows tokenised once and mapped from disk, and the plan.

The first process writes <out>/rows/ (train/, eval/, report.json last); the others and a resumed run read it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eval_harness.errors import UserError
from training.model_shape import shape_of
from training.sft_config import SftRunConfig, make_trainer_arguments
from training.sft_dataset import load_sft_dataset
from training.sft_launch import LaunchFacts
from training.sft_model import (
    check_positions,
    count_adapter_parameters,
    load_trainee_config,
    load_trainee_tokenizer,
    prepare_source,
)
from training.sft_plan import RunPlan, device_memory, make_plan
from training.sft_rows import LengthReport, pack_rows, tokenize_rows
from training.sft_split import split_by_task
from trajectories.store import disk_errors, write_atomically

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedConfig, PreTrainedTokenizerBase
    from trl import SFTConfig

ROWS_DIR = "rows"
REPORT_FILE = "report.json"


@dataclass
class PreparedRows:
    """Everything of a run but the weights."""

    source: str
    """Name or folder of the model."""
    tokenizer: PreTrainedTokenizerBase
    """With the marked template."""
    model_config: PreTrainedConfig
    train: Dataset
    report: LengthReport
    eval: Dataset | None
    eval_report: LengthReport | None

    @property
    def sequence_lengths(self) -> Sequence[int]:
        """Tokens of each row that is trained on; packed: of each sequence."""
        if "seq_lengths" in self.train.column_names:
            return [sum(lengths) for lengths in self.train["seq_lengths"]]
        return self.report.lengths


def prepare_rows(config: SftRunConfig, args: SFTConfig, dataset: Dataset) -> PreparedRows:
    """Tokenise in the first process, read what it wrote in the others. Raises UserError."""
    folder = config.out_dir / ROWS_DIR
    with args.main_process_first(local=False, desc="rows"):
        is_first = args.process_index == 0
        if is_first and (config.student.name_or_path is not None or not (folder / REPORT_FILE).is_file()):
            source = prepare_source(config, dataset)
        else:
            source = config.student.name_or_path or _untrained(config)
        tokenizer = load_trainee_tokenizer(config, source)
        if is_first and not (folder / REPORT_FILE).is_file():
            _write_rows(config, dataset, tokenizer, folder, show_progress=not args.disable_tqdm)
    return _read_rows(config, source, tokenizer, folder)


def prepare_plan(config: SftRunConfig, args: SFTConfig, launch: LaunchFacts, rows: PreparedRows) -> RunPlan:
    """The plan for these rows. Raises UserError for rows beyond the model's positions."""
    shape = shape_of(rows.model_config)
    check_positions(config, shape, max(rows.report.lengths))
    return make_plan(
        config,
        args,
        launch,
        shape,
        lengths=rows.sequence_lengths,
        trained_share=rows.report.num_trained_tokens / rows.report.num_tokens,
        adapter_parameters=count_adapter_parameters(rows.model_config, config.lora),
        device_memory_gib=device_memory(config, launch),
    )


def dry_run(config: SftRunConfig, launch: LaunchFacts) -> list[str]:
    """What a launch would do, as lines for people; nothing is trained and nothing is written.

    A tokenizer out of reach is said: every row is then taken to be max_length. Raises UserError for what cannot work.
    """
    import torch
    import yaml

    here = {} if torch.cuda.is_available() and not launch.on_cpu else {"bf16": False, "tf32": None, "use_cpu": True}
    args = make_trainer_arguments(config, here)
    dataset = load_sft_dataset(config.dataset)
    lines = ["configuration:", *_indented(yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False))]
    source = config.student.name_or_path
    if source is None:
        return [*lines, f"{len(dataset)} rows; the tiny student and its tokenizer are built when it is trained"]
    model_config = load_trainee_config(config, source)
    shape = shape_of(model_config)
    check_positions(config, shape, 0)
    lengths: Sequence[int] | None = None
    share: float | None = None
    try:
        tokenizer = load_trainee_tokenizer(config, source)
    except UserError as error:
        lines.append(f"tokens: not counted, each row is taken to have max_length ({error})")
    else:
        train, _ = _split(config, dataset)
        kept, report = _tokenize(config, train, tokenizer, show_progress=False)
        check_positions(config, shape, max(report.lengths))
        share = report.num_trained_tokens / report.num_tokens
        lengths = report.lengths
        if config.packing and config.max_length:
            lengths = [sum(row) for row in pack_rows(kept, config.max_length)["seq_lengths"]]
        lines.append(f"tokens: {report.describe()}")
    plan = make_plan(
        config,
        args,
        launch,
        shape,
        lengths=lengths,
        trained_share=share,
        adapter_parameters=count_adapter_parameters(model_config, config.lora),
        device_memory_gib=device_memory(config, launch),
    )
    lines += plan.describe()
    if plan.device_memory_gib is None and not launch.on_cpu:
        lines.append("no GPU here to compare with: set device_memory_gib to that of yours")
    if config.memory == "refuse":
        plan.refuse_misfit()
    return lines


def _indented(text: str) -> list[str]:
    return [f"  {line}" for line in text.rstrip().splitlines()]


def _untrained(config: SftRunConfig) -> str:
    from training.sft_model import UNTRAINED_DIR

    return str(config.out_dir / UNTRAINED_DIR)


def _split(config: SftRunConfig, dataset: Dataset) -> tuple[Dataset, Dataset | None]:
    split = config.eval_split
    if split.dataset is not None:
        return dataset, load_sft_dataset(split.dataset)
    if config.has_validation:
        return dataset, load_sft_dataset(config.dataset, "validation")
    return split_by_task(dataset, split.fraction, split.seed) if split.fraction else (dataset, None)


def _tokenize(
    config: SftRunConfig, dataset: Dataset, tokenizer: PreTrainedTokenizerBase, *, show_progress: bool
) -> tuple[Dataset, LengthReport]:
    return tokenize_rows(
        dataset,
        tokenizer,
        max_length=config.max_length,
        too_long=config.too_long,
        min_trained_tokens=config.min_trained_tokens,
        reasoning=config.student.reasoning,
        chat_template=tokenizer.chat_template,
        show_progress=show_progress,
    )


def _write_rows(
    config: SftRunConfig, dataset: Dataset, tokenizer: PreTrainedTokenizerBase, folder: Path, *, show_progress: bool
) -> None:
    train, held_out = _split(config, dataset)
    reports: dict[str, Any] = {}
    with disk_errors(folder):
        shutil.rmtree(folder, ignore_errors=True)  # half of it, from a process that was killed
        for name, part in (("train", train), ("eval", held_out)):
            if part is None:
                continue
            rows, report = _tokenize(config, part, tokenizer, show_progress=show_progress)
            if name == "train" and config.packing and config.max_length is not None:
                rows = pack_rows(rows, config.max_length)
            rows.save_to_disk(folder / name)
            reports[name] = report.model_dump()
        write_atomically(folder / REPORT_FILE, json.dumps(reports, indent=1) + "\n")


def _read_rows(config: SftRunConfig, source: str, tokenizer: PreTrainedTokenizerBase, folder: Path) -> PreparedRows:
    from datasets import load_from_disk

    reports = {name: LengthReport.model_validate(report)
               for name, report in json.loads((folder / REPORT_FILE).read_text()).items()}  # fmt: skip
    return PreparedRows(
        source=source,
        tokenizer=tokenizer,
        model_config=load_trainee_config(config, source),
        train=load_from_disk(str(folder / "train")),
        report=reports["train"],
        eval=load_from_disk(str(folder / "eval")) if "eval" in reports else None,
        eval_report=reports.get("eval"),
    )
