"""README.md of a dataset: what is in it, what was dropped and why, its licence, and how to load it. Text only."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

_COLUMNS = """\
| column | meaning |
|---|---|
| `messages` | the conversation in OpenAI's form; tool arguments are objects, and exact |
| `tools` | JSON text of the tools that were offered |
| `task_id`, `task_hash` | the task and the hash of its graphs |
| `trajectory_id`, `attempt_index`, `agent`, `stop_reason`, `cut_reason` | the attempt, and why the row ends there |
| `policy`, `teacher`, `license` | what wrote it, and on which terms |
| `device` | where its passes were evaluated |
| `as_score`, `as_covered` | what the selection went by (preset `strict`: a fresh evaluation) |
| `protocol`, `num_graphs`, `num_correct_graphs` | the fresh evaluation if there is one, else the best feedback |
| `num_turns` | assistant messages of the row |
| `candidate_hash`, `row_hash` | the pass folder; the conversation and the tools |
"""


def render_card(summary: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """The card. summary: DatasetSummary's fields; config: the resolved DatasetConfig."""
    licenses = summary["rows_by_license"]
    parts = [
        _front_matter(summary, licenses),
        f"# {summary['name']}\n\n"
        f"{summary['num_rows']} trajectories of agents that write graph-compiler passes, "
        f"for {summary['num_tasks']} tasks. "
        "Each pass was really run: a judge measured its correctness and speed against eager execution. "
        "Built by Passwright (`passwright dataset build`).\n",
        "## Composition\n\n" + _composition(summary),
        "## Kept and dropped\n\n" + _refusals(summary),
        "## Columns\n\n" + _COLUMNS,
        "## Load\n\n```python\nimport json\n\nfrom datasets import load_dataset\n\n"
        'dataset = load_dataset("PATH_OF_THIS_FOLDER", split="train")\n'
        'messages, tools = dataset[0]["messages"], json.loads(dataset[0]["tools"])\n```\n\n'
        "Train on the assistant's tokens only: system, user and tool messages were written by the environment.\n",
        "## Licence\n\n" + _license_text(licenses),
        "## Selection\n\n```json\n" + json.dumps(config, indent=1, sort_keys=True) + "\n```\n",
    ]
    return "\n".join(parts)


def _front_matter(summary: Mapping[str, Any], licenses: Mapping[str, int]) -> str:
    names = [name for name in licenses if name != "unknown"]
    license_line = f"license: {names[0].lower()}" if len(licenses) == 1 and names else "license: other"
    return (
        "---\n"
        f"pretty_name: {json.dumps(summary['name'])}\n"
        f"{license_line}\n"
        "task_categories:\n- text-generation\n"
        "tags:\n- code\n- agent\n- compiler\n- conversational\n"
        "configs:\n- config_name: default\n  data_files:\n  - split: train\n    path: data/train-*.parquet\n"
        "---\n"
    )


def _composition(summary: Mapping[str, Any]) -> str:
    lines = ["| | rows |", "|---|---|"]
    lines += [f"| written by {name} | {count} |" for name, count in summary["rows_by_policy"].items()]
    lines += [f"| licence {name} | {count} |" for name, count in summary["rows_by_license"].items()]
    lines += [f"\n{summary['num_turns']} assistant turns in all. Scores:\n"]
    lines += ["| | lowest | median | highest |", "|---|---|---|---|"]
    lines += [_spread("AS", summary["as_scores"]), _spread("AS, covered", summary["as_covered"])]
    lines += [f"\nHash of the rows: `{summary['dataset_hash']}`"]
    return "\n".join(lines) + "\n"


def _spread(name: str, values: Sequence[float]) -> str:
    if not values:
        return f"| {name} | - | - | - |"
    middle = len(values) // 2
    median = values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2
    return f"| {name} | {values[0]:.3f} | {median:.3f} | {values[-1]:.3f} |"


def _refusals(summary: Mapping[str, Any]) -> str:
    lines = [f"{summary['num_rows']} of {summary['num_trajectories']} trajectories were kept."]
    if summary["refusals"]:
        lines += ["", "| dropped because | trajectories |", "|---|---|"]
        lines += [f"| {reason} | {count} |" for reason, count in summary["refusals"].items()]
    return "\n".join(lines) + "\n"


def _license_text(licenses: Mapping[str, int]) -> str:
    text = "The conversations carry the terms of what wrote them (column `license`): "
    text += ", ".join(f"{name} ({count})" for name, count in licenses.items()) + ".\n"
    if "unknown" in licenses:
        text += "\nRows of unknown licence: ask who collected them before you publish anything made from them.\n"
    return text
