"""`passwright tasks build`: a zoo of models -> a set of tasks in one Parquet file, with its card.

    models (capture, a process each) -> templates (where to cut) -> instances (text) -> choose <-> check (run) -> write

Every stage leaves its files under the output folder and is not done again when nothing that it depends on has changed,
so a build that was stopped goes on where it was. This module wires the stages; it knows nothing of how they work.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data.construct.bucketing import Group
from data.construct.build_config import BuildConfig
from data.construct.card import write_card
from data.construct.checking import Check, CheckLog, answers, check_graphs
from data.construct.choosing import HELD_OUT, KIND_OF, Choice, Rarities, choose, describe_coverage, measure_rarities
from data.construct.instance_store import Member, read_graphs, read_members, write_instances
from data.construct.model_result import ModelResult
from data.construct.model_run import run_models
from data.construct.selection import build_task
from data.construct.sequence_model import check_available
from data.construct.templates import Template, find_templates, read_base_graphs, read_models
from data.graph import Graph
from data.passbench import write_parquet
from data.splits import leak_report
from data.task import Task

logger = logging.getLogger(__name__)

MAX_ROUNDS = 200
"""Of choosing and checking: each round runs only what the last one newly chose."""
RUN_LIMIT_S = 5.0
"""For one graph's check, all of its runs."""
REPORT_FILE = "build_report.json"
MORE_OF_A_SEQUENCE = 64
TITLE_CHARS = 100
SHOWN_ARCHITECTURES = 4
_REFUSALS = {
    ("does not vary",): "an output that does not vary with the inputs",
    ("one value everywhere",): "an output that is one value everywhere",
    ("not finite",): "an output that is not finite",
    ("makes a tensor of shape", "no elements"): "a tensor without elements",
    ("its arguments take", "one run makes more"): "more memory than it may have",
    ("takes longer",): "more time than it may have",
}
"""Parts of run_check's reasons -> what they are counted as."""


class BuildError(RuntimeError):
    """The build cannot end as the configuration asks. What it has done so far is kept."""


@dataclass(frozen=True)
class Built:
    """What a build wrote."""

    path: Path
    card: Path
    tasks: list[Task]
    report: dict[str, Any]


def build_tasks(config: BuildConfig, out: str | Path, *, num_workers: int | None = None) -> Built:
    """Build the configured set under `out`; goes on where an earlier build with the same configuration stopped.

    Raises BuildError where too few models or tasks come out, ValueError for a model id that the zoo does not know,
    SequenceModelError where the library of splits.sequence_model is missing.
    """
    check_available(config.splits.sequence_model)
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    num_workers = num_workers or os.cpu_count() or 1
    seconds: dict[str, float] = {}
    models = _timed(seconds, "models", lambda: _models(config, out, num_workers))
    templates = _timed(seconds, "templates", lambda: _templates(config, out, models))
    members = _timed(seconds, "instances", lambda: _instances(config, out, templates, num_workers))
    rarity = _timed(seconds, "rarities", lambda: measure_rarities(members, config.splits))
    choice, refused = _timed(seconds, "choose and check", lambda: _choose(config, out, members, rarity, num_workers))
    tasks = _timed(seconds, "write", lambda: _tasks(choice, members))
    leaks = leak_report(tasks)
    if not leaks.clean:
        raise BuildError("; ".join(line for line in leaks.lines() if line.startswith("leak")))
    path = out / f"{config.name}.parquet"
    write_parquet(tasks, path)
    report = _report(config, models, templates, members, choice, refused, tasks, seconds)
    report["coverage"] = describe_coverage(members, choice, refused)
    (out / REPORT_FILE).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    card = write_card(tasks, report, path)
    return Built(path, card, tasks, report)


def model_ids(config: BuildConfig) -> list[str]:
    """The models of a configuration, by id. Raises ValueError for one that the zoo does not know."""
    zoo = importlib.import_module(config.models.zoo)
    if config.models.only:
        return [zoo.find_model(model_id).model_id for model_id in config.models.only]
    return [entry.model_id for entry in zoo.list_models(config.models.sources)]


def _models(config: BuildConfig, out: Path, num_workers: int) -> list[ModelResult]:
    wanted = model_ids(config)
    about = config.models
    run_models(
        wanted,
        out / "models",
        num_workers=num_workers,
        time_limit_s=about.time_limit_s,
        shapes=about.shapes,
        dtypes=about.dtypes,
        seed=about.seed,
        zoo=about.zoo,
    )
    models = [model for model in read_models(out / "models") if model.model_id in set(wanted)]
    num_architectures = len({model.architecture for model in models})
    if num_architectures < about.min_architectures:
        raise BuildError(
            f"{num_architectures} architectures gave a graph, fewer than models.min_architectures="
            f"{about.min_architectures}; {out / 'models'}/*/result.json says why the others did not"
        )
    return models


def _templates(config: BuildConfig, out: Path, models: Sequence[ModelResult]) -> list[Template]:
    """Not kept: reading the programs again takes seconds, and folding depends on all of them."""
    graphs = list(read_base_graphs(out / "models", models))
    logger.info("%d models, %d full graphs", len(models), len(graphs))
    return find_templates(graphs, config.subgraphs)


def _instances(config: BuildConfig, out: Path, templates: Sequence[Template], num_workers: int) -> list[Member]:
    dtypes = ("float32", *config.models.dtypes)
    folder = out / "instances"
    write_instances(templates, out / "models", folder, dtypes=dtypes, num_workers=num_workers)
    return read_members(folder)


def _choose(
    config: BuildConfig, out: Path, members: Sequence[Member], rarity: Rarities, num_workers: int
) -> tuple[Choice, dict[str, str]]:
    """A choice all of whose graphs have run, and why others were refused."""
    logs = [CheckLog(out / f"{check.name}.jsonl", check) for check in _checks(config)]
    shared: dict[str, str] = {}
    for number in range(MAX_ROUNDS):
        reasons = answers(logs) | shared
        refused = {uid: reason for uid, reason in reasons.items() if reason is not None}
        choice = choose(members, config.splits, refused, rarity)
        todo = _to_run(members, choice, reasons)
        logger.info("round %d: %d graphs chosen, %d to run", number + 1, len(choice.keys), len(todo))
        if not todo:
            same = _same_code(config, choice, members)
            if not same.keys() - shared.keys():
                return choice, refused
            logger.info("%d training graphs hold the code of a held-out one", len(same))
            shared |= same
            continue
        check_graphs(read_graphs(todo.values()).values(), logs, num_workers=num_workers)
    raise BuildError(
        f"after {MAX_ROUNDS} rounds of choosing, graphs are still refused; see {out}/{logs[0].check.name}.jsonl"
    )


def _same_code(config: BuildConfig, choice: Choice, members: Sequence[Member]) -> dict[str, str]:
    """uid -> why, of chosen training graphs whose code holds nearly all of a held-out graph's."""
    module, _, name = config.splits.same_code.partition(":")
    if not module:
        return {}
    chosen = {(member.kind, member.uid): member for member in members if (member.kind, member.uid) in choice.keys}
    graphs = read_graphs(chosen.values())
    sides: dict[bool, list[Graph]] = {True: [], False: []}
    for split, groups in choice.groups.items():
        for group in groups:
            sides[split in HELD_OUT] += [graphs[KIND_OF[split], uid] for uid in group.uids]
    return getattr(importlib.import_module(module), name)(sides[False], sides[True])


def _checks(config: BuildConfig) -> list[Check]:
    """What a graph must do to stay, the cheap question first."""
    runs = {"time_limit_s": RUN_LIMIT_S, "max_bytes": config.subgraphs.max_graph_bytes}
    found = [Check("check", "data.construct.run_check:check_instance", runs, RUN_LIMIT_S)]
    if config.screening.function:
        seeds = {"num_seeds": config.screening.seeds}
        found.append(Check("screen", config.screening.function, seeds, config.screening.time_limit_s))
    return found


def _to_run(members: Sequence[Member], choice: Choice, reasons: Mapping[str, str | None]) -> dict[str, Member]:
    """uid -> member that was chosen and has no answer; where graphs of its operator sequence were refused, more of it.

    A sequence most of whose graphs are refused would otherwise come back round after round with another few.
    """
    wanted = {key for key in choice.keys if key[1] not in reasons}
    in_doubt = {member.bucketed.key.operators for member in members if reasons.get(member.uid) is not None}
    chosen = {member.bucketed.key.operators for member in members if (member.kind, member.uid) in wanted}
    doubtful = in_doubt & chosen
    more: Counter[tuple[str, ...]] = Counter()
    todo = {}
    for member in members:
        operators = member.bucketed.key.operators
        if member.uid in reasons:
            continue
        if (member.kind, member.uid) in wanted:
            todo[member.uid] = member
        elif operators in doubtful and more[operators] < MORE_OF_A_SEQUENCE:
            more[operators] += 1
            todo[member.uid] = member
    return todo


def _tasks(choice: Choice, members: Sequence[Member]) -> list[Task]:
    wanted = choice.keys
    chosen = {(member.kind, member.uid): member for member in members if (member.kind, member.uid) in wanted}
    graphs = read_graphs(chosen.values())
    tasks = []
    for split, groups in choice.groups.items():
        kind = KIND_OF[split]
        for group in groups:
            mine = {uid: graphs[kind, uid] for uid in group.uids}
            architectures = {chosen[kind, uid].architecture for uid in group.uids}
            tasks.append(build_task(group, mine, split=split, facts=_facts(group, kind, sorted(architectures))))
    return tasks


def _facts(group: Group, kind: str, architectures: Sequence[str]) -> dict[str, str]:
    """What a prompt may show. Nothing here says how a good pass is written."""
    title = ", ".join(group.operators)
    more = f" and {len(architectures) - SHOWN_ARCHITECTURES} more" if len(architectures) > SHOWN_ARCHITECTURES else ""
    return {
        "title": title if len(title) <= TITLE_CHARS else f"{title[: TITLE_CHARS - 4]} ...",
        "origin": ", ".join(architectures[:SHOWN_ARCHITECTURES]) + more,
        "kind": kind,
    }


def _report(
    config: BuildConfig,
    models: Sequence[ModelResult],
    templates: Sequence[Template],
    members: Sequence[Member],
    choice: Choice,
    refused: dict[str, str],
    tasks: Sequence[Task],
    seconds: dict[str, float],
) -> dict[str, Any]:
    kinds = tuple(dict.fromkeys(KIND_OF.values()))
    return {
        "config": config.model_dump(mode="json"),
        "seconds": {stage: round(spent, 1) for stage, spent in seconds.items()},
        "models": {
            "num_models": len(models),
            "num_architectures": len({model.architecture for model in models}),
            "by_domain": _count(model.domain for model in models),
            "peak_rss_mb": max((model.peak_rss_mb or 0.0 for model in models), default=0.0),
            "cpu_s": round(sum(sum(model.cpu_s.values()) for model in models)),
            "licences": _count(model.licence for model in models),
            "architectures": sorted({model.architecture for model in models}),
        },
        "templates": {kind: sum(template.kind == kind for template in templates) for kind in kinds},
        "instances": {kind: sum(member.kind == kind for member in members) for kind in kinds},
        "refused": _count(map(_kind_of_refusal, refused.values())),
        "tasks": _count(task.split for task in tasks),
        "graphs": {
            split: sum(len(task.graphs) for task in tasks if task.split == split) for split in choice.groups
        },
        "overlap": choice.overlap.lines(),
    }  # fmt: skip


def _kind_of_refusal(reason: str) -> str:
    """The reason without the names and figures of one graph."""
    for marks, kind in _REFUSALS.items():
        if any(mark in reason for mark in marks):
            return kind
    return reason.split(":")[0]


def _count(values: Any) -> dict[str, int]:
    found: dict[str, int] = {}
    for value in values:
        found[str(value)] = found.get(str(value), 0) + 1
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def _timed(seconds: dict[str, float], stage: str, action: Any) -> Any:
    start = time.monotonic()
    found = action()
    seconds[stage] = time.monotonic() - start
    logger.info("%s: %.0f s", stage, seconds[stage])
    return found
