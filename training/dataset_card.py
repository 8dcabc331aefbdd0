"""README.md of a dataset: what is in it, what was dropped and why, its provenance and licence, how to load it.

Text only, from DatasetSummary and DatasetConfig; undated, so that the same dataset has the same card.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from training.dataset_config import DatasetConfig
from training.dataset_summary import DatasetSummary
from training.teachers import OPEN_LICENCES

_COLUMNS = """\
| column | meaning |
|---|---|
| `messages` | the conversation in OpenAI's form; tool arguments are objects, and exact (those that JSON readers change, and malformed ones, are the text that was written) |
| `tools` | JSON text of the tools that were offered |
| `task_id`, `task_hash` | the task and the hash of its graphs |
| `trajectory_id`, `attempt_index`, `agent`, `stop_reason`, `cut_reason` | the attempt, and why the row ends there |
| `policy`, `teacher`, `license`, `terms` | what wrote it, and on which terms |
| `device` | where its passes were evaluated |
| `as_score`, `as_covered` | what the selection went by (preset `strict`: a fresh evaluation) |
| `protocol`, `num_graphs`, `num_correct_graphs` | the fresh evaluation if there is one, else the best feedback |
| `num_turns`, `num_without_reasoning` | assistant messages of the row; those whose teacher showed no reasoning |
| `untrained_turns` | assistant messages, from 0, that are context and should train no token |
| `candidate_hash`, `row_hash` | the pass folder; the conversation and the tools |
"""  # noqa: E501 (a table row is one line)
_CANDIDATE_COLUMNS = """\
| column | meaning |
|---|---|
| `task_id`, `task_hash`, `num_graphs` | the task, the hash of its graphs, how many |
| `trajectory_id`, `attempt_index`, `agent` | the attempt that it is from |
| `candidate`, `generation`, `parents`, `turn`, `member` | its number in the attempt; the generation or plan; candidates that its request showed; the answer that wrote it; which policy of an ensemble |
| `request_kind`, `recommendation` | what was asked for, and the advice or the plan; empty in a conversation |
| `files` | JSON object: path -> text |
| `stage`, `rejected` | why it was not judged: malformed, duplicate, source, batch_invariance, ranked, budget; empty where it was |
| `verdict`, `outcome`, `protocol` | JSON of the whole verdict; outcomes of its graphs |
| `as_score`, `as_covered`, `num_correct_graphs` | of that verdict; 0 without one |
| `votes`, `profile` | JSON of the soft verifiers' shares; what a profiler said, if one was asked |
| `policy`, `teacher`, `license`, `terms`, `device`, `row_hash` | what wrote it, on which terms; where it was judged; equal for equal files of a task |
"""  # noqa: E501 (a table row is one line)
_PREFERENCE_COLUMNS = """\
| column | meaning |
|---|---|
| `prompt`, `chosen`, `rejected` | messages in OpenAI's form: the task with one plain request; the better and the worse pass, each written as one answer that creates all of its files |
| `as_covered`, `as_covered_rejected`, `outcome_rejected` | of the two passes |
| `tools` | JSON text of the tools that were offered |
| `task_id`, `task_hash`, `trajectory_id`, `agent`, `policy`, `teacher`, `license`, `terms`, `device`, `protocol`, `row_hash` | of the better one |
"""  # noqa: E501 (a table row is one line)
_LOAD_ROWS = """\
```python
from datasets import load_dataset

dataset = load_dataset("PATH_OF_THIS_FOLDER", split="train")
```
"""
_WHAT = {
    "conversations": "trajectories of agents that write graph-compiler passes",
    "candidates": "candidates: graph-compiler passes that agents have tried, each with its verdict",
    "candidate-sft": "requests and answers of agents that search for graph-compiler passes, each answer a correct pass",
    "verifier": "questions of soft verifiers about graph-compiler passes, with the answer that the harness gives",
    "preferences": "pairs of a better and a worse graph-compiler pass of one task",
}
"""Kind -> what a row is, in the plural."""
_TOKEN_COLUMNS = "| `num_tokens`, `num_trained_tokens` | with the tokenizer named above |\n"
_LOAD = """\
```python
import json

from datasets import load_dataset

dataset = load_dataset("PATH_OF_THIS_FOLDER", split="train")
messages, tools = dataset[0]["messages"], json.loads(dataset[0]["tools"])
```

Train on the assistant's tokens only: system, user and tool messages were written by the environment. Of the \
assistant's messages, leave out those that `untrained_turns` names.
"""
_LOAD_LINES = """\
Each line of `data/train-*.jsonl` is `{"messages": [...], "tools": [...]}`, with tool arguments as JSON text: the form \
in which fine-tuning APIs that follow OpenAI's take conversations with tools. A turn with `"weight": 0` is context.
"""
_QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))


def render_card(summary: DatasetSummary, config: DatasetConfig) -> str:
    """The card."""
    is_parquet = summary.format == "parquet"
    columns = _COLUMNS + (_TOKEN_COLUMNS if summary.lengths else "")
    columns = {"candidates": _CANDIDATE_COLUMNS, "preferences": _PREFERENCE_COLUMNS}.get(config.kind, columns)
    if config.kind == "verifier":
        columns += "| `aspect`, `label` | what is asked about: compilation, memory or numerics; pass or fail |\n"
    has_messages = config.kind in ("conversations", "candidate-sft", "verifier")
    sections = {
        "Composition": _composition(summary),
        "Scores": _scores(summary),
        "Tokens": _tokens(summary),
        "Teachers": _teachers(summary),
        "Kept and dropped": _refusals(summary),
        "Evaluation tasks": _contamination(summary),
        "Provenance": _provenance(summary),
        "Columns": columns if is_parquet else "",
        "Load": (_LOAD if has_messages else _LOAD_ROWS) if is_parquet else _LOAD_LINES,
        "Licence": _license_text(summary.rows_by_license),
        "Limits": _limits(summary, config),
        "Configuration": "```json\n" + json.dumps(_told(config), indent=1, sort_keys=True) + "\n```\n",
    }
    title = (
        f"# {summary.name}\n\n{summary.num_rows} {_WHAT[config.kind]}, for {summary.num_tasks} tasks. "
        "Each pass was really run: a judge measured its correctness and speed against eager execution. "
        "Built by Passwright (`passwright dataset build`).\n"
    )
    parts = [_front_matter(summary), title, *(f"## {name}\n\n{text}" for name, text in sections.items() if text)]
    return "\n".join(parts)


def quantile(ascending: Sequence[float], share: float) -> float:
    """By linear interpolation; of at least one value."""
    place = share * (len(ascending) - 1)
    low = int(place)
    high = min(low + 1, len(ascending) - 1)
    return ascending[low] + (place - low) * (ascending[high] - ascending[low])


def _front_matter(summary: DatasetSummary) -> str:
    names = [name.lower() for name in summary.rows_by_license]
    license_name = names[0] if len(names) == 1 and names[0] in OPEN_LICENCES else "other"
    suffix = "parquet" if summary.format == "parquet" else "jsonl"
    size = next((name for bound, name in _SIZES if summary.num_rows < bound), "n>1M")
    files = "".join(f"  - split: {split}\n    path: data/{split}-*.{suffix}\n" for split in summary.splits)
    return (
        "---\n"
        f"pretty_name: {json.dumps(summary.name)}\n"
        f"license: {license_name}\n"
        "task_categories:\n- text-generation\n"
        "language:\n- en\n"
        "tags:\n- code\n- agent\n- compiler\n- tool-use\n- conversational\n- passwright\n"
        f"size_categories:\n- {size}\n"
        f"configs:\n- config_name: default\n  data_files:\n{files}"
        "---\n"
    )


def _composition(summary: DatasetSummary) -> str:
    lines = ["| | rows |", "|---|---|"]
    lines += [f"| split `{split}` | {count} |" for split, count in summary.splits.items()]
    lines += [f"| written by {_cell(name)} | {count} |" for name, count in summary.rows_by_policy.items()]
    lines += [f"| licence {_cell(name)} | {count} |" for name, count in summary.rows_by_license.items()]
    lines += [f"\n{summary.num_turns} assistant turns in all, {_size(summary.num_text_bytes)} of text."]
    if summary.num_reasoning_left_out:
        lines += [f"The reasoning of {summary.num_reasoning_left_out} turns has no place in this format."]
    lines += [f"\nHash of the rows: `{summary.dataset_hash}`"]
    return "\n".join(lines) + "\n"


def _scores(summary: DatasetSummary) -> str:
    names = ["lowest", "10%", "25%", "median", "75%", "90%", "highest"]
    lines = ["| | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for name, values in (("AS", summary.as_scores), ("AS, covered", summary.as_covered)):
        lines.append(f"| {name} | " + " | ".join(f"{quantile(values, share):.3f}" for share in _QUANTILES) + " |")
    faster = sum(score >= 1 for score in summary.as_scores)
    have = "row has" if faster == 1 else "rows have"
    lines.append(f"\nAS is the error-aware speedup score: 1 is eager execution. {faster} {have} 1 or more.")
    return "\n".join(lines) + "\n"


def _tokens(summary: DatasetSummary) -> str:
    lengths = summary.lengths
    if lengths is None:
        return "Not counted: no tokenizer was given when this was built.\n"
    lines = [
        f"With the tokenizer `{lengths.tokenizer}`: {lengths.num_tokens} tokens, {lengths.num_trained_tokens} of them "
        f"the assistant's that train. Shortest row {lengths.shortest}, median {lengths.median}, longest "
        f"{lengths.longest}.\n",
        "| tokens up to | rows | rows so far |",
        "|---|---|---|",
    ]
    total = 0
    for edge, count in lengths.histogram.items():
        total += count
        lines.append(f"| {edge} | {count} | {total} |")
    return "\n".join(lines) + "\n"


def _teachers(summary: DatasetSummary) -> str:
    lines = [
        "| teacher | trajectories kept | turns | without reasoning | licence | terms |",
        "|---|---|---|---|---|---|",
    ]
    for teacher in summary.teachers:
        name = teacher.name
        if teacher.model not in ("", name):
            name += f" ({teacher.model})"
        without = str(teacher.num_without_reasoning)
        if teacher.num_untrained:
            without += f" ({teacher.num_untrained} of them train no token)"
        cells = (
            f"{name}, {teacher.kind}",
            f"{teacher.num_rows} of {teacher.num_trajectories}",
            str(teacher.num_turns),
            without,
            teacher.licence,
            teacher.terms or "not stated",
        )
        lines.append("| " + " | ".join(_cell(cell) for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _refusals(summary: DatasetSummary) -> str:
    lines = [f"{summary.num_rows} of {summary.num_trajectories} trajectories were kept."]
    if summary.refusals:
        lines += ["", "| dropped because | trajectories |", "|---|---|"]
        lines += [f"| {_cell(reason)} | {count} |" for reason, count in summary.refusals.items()]
    return "\n".join(lines) + "\n"


def _contamination(summary: DatasetSummary) -> str:
    found = summary.contamination
    if found is None:
        return "This dataset was compared with no evaluation tasks.\n"
    text = (
        f"{found.num_compared} trajectories were compared with the {found.num_eval_tasks} tasks of "
        f"{', '.join(f'`{ref}`' for ref in found.eval_tasks)} ({found.num_eval_graphs} graphs, hash "
        f"`{found.eval_hash[:16]}`) by graph, by operator sequence and by n-grams of code. "
    )
    if not found.num_found:
        text += "None shares anything with them.\n"
    else:
        fate = "were left out" if found.mode == "drop" else "ARE STILL IN IT: scores on those tasks would mean nothing"
        counts = ", ".join(f"{kind} {count}" for kind, count in found.by_kind.items() if count)
        text += f"{found.num_found} do (same {counts}) and {fate}. Their tasks:\n\n"
        text += "".join(f"- {_cell(task)}, like {_cell(other)}\n" for task, other in found.tasks.items())
    if found.num_unknown_operators:
        text += f"\nOf {found.num_unknown_operators} the operators are not known; hashes and code were compared.\n"
    return text


def _provenance(summary: DatasetSummary) -> str:
    lines = ["| collection | trajectories | its configuration | its records |", "|---|---|---|---|"]
    for entry in summary.collections:
        hashes = (f"`{entry.config_hash[:16]}`" if entry.config_hash else "-", f"`{entry.records_hash[:16]}`")
        lines.append(f"| {_cell(entry.name)} | {entry.num_trajectories} | {' | '.join(hashes)} |")
    versions: dict[str, set[str]] = {}
    for entry in summary.collections:
        for library, seen in entry.versions.items():
            versions.setdefault(library, set()).update(seen)
    told = ", ".join(f"{library} {'/'.join(sorted(seen))}" for library, seen in sorted(versions.items()))
    return (
        "\n".join(lines) + "\n\nHashes are sha256, cut to 16 digits." + (f" Collected with {told}.\n" if told else "\n")
    )


def _license_text(licenses: Mapping[str, int]) -> str:
    text = "The conversations carry the terms of what wrote them (columns `license` and `terms`): "
    text += ", ".join(f"{name} ({count})" for name, count in licenses.items()) + ".\n"
    if "unknown" in licenses:
        text += "\nRows of unknown licence: ask who collected them before you publish anything made from them.\n"
    return text


def _limits(summary: DatasetSummary, config: DatasetConfig) -> str:
    lines = [
        "- Speeds hold for the machines on which they were measured (column `device`), not for others.",
        "- Correct means: within the tolerances of the protocol on the inputs that were drawn, not proven.",
    ]
    if config.kind != "conversations":
        lines.append("- Scores are those of the evaluations that the search chose by: the best of many is a lucky one.")
    elif config.selection.preset == "paper":
        lines.append(
            "- The preset `paper` keeps every trajectory with AS > 0.1: wrong and crashing passes are among them."
        )
    if config.selection.near_duplicates is None:
        lines.append("- Near duplicates were not looked for.")
    if any(teacher.num_rows and teacher.num_without_reasoning for teacher in summary.teachers):
        lines.append(
            "- Some turns show no reasoning (`num_without_reasoning`): a student learns to act without it there."
        )
    return "\n".join(lines) + "\n"


def _told(config: DatasetConfig) -> dict[str, object]:
    """What decides the dataset; paths and processes of the machine do not."""
    return config.model_dump(mode="json", exclude={"out", "collections", "num_workers"})


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:.1f} MB" if num_bytes >= 1e6 else f"{num_bytes / 1e3:.0f} kB"


def _cell(text: str) -> str:
    """Text that stays in its table cell, whatever a configuration holds."""
    return " ".join(text.split()).replace("|", "\\|")
