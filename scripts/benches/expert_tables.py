"""The tables of `passwright bench expert`, from its figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scripts.benches.expert_records import ROW_NAMES
from scripts.benches.output import render_table

MAX_REASONS = 12
NUM_WHY = 110
_ROW_HEADER = ("row", "tasks", "graphs", "CORRECT", "share", "AS", "95%", "covered AS", "x host", "95%", "x GPU",
               "95%", "coverage")  # fmt: skip
_STAGES = ("plan", "load", "match", "compile ahead", "waiting for the device", "correctness", "coverage",
           "unseen shapes", "timing", "other")  # fmt: skip
_UNTIMED = 5
"""Columns before those that need a clock; the last one needs none."""


def render(figures: Mapping[str, Any]) -> str:
    """The tables, for a reader. x host: eager's time over its own, by the judge's clock; x GPU: of GPU time alone."""
    is_timed = figures["is_timed"]
    parts = [_head(figures), _planning(figures["planning"])]
    parts.append("graphs by outcome\n" + render_table(("outcome", "graphs"), list(figures["outcomes"].items())))
    parts.append("the expert\n" + _table(figures["rows"], is_timed=is_timed))
    parts += [_comparison(name, found) for name, found in figures["comparisons"].items()]
    parts.append(_groups(figures["groups"], is_timed=is_timed, is_compared=bool(figures["comparisons"])))
    parts.append(_worst(figures["worst"]))
    parts.append(_stages(figures["stages"], figures["wall_s"]))
    return "\n\n".join(part for part in parts if part)


def _table(rows: Mapping[str, Mapping[str, Any]], *, is_timed: bool) -> str:
    cells = [
        [
            name, row["tasks"], row["graphs"], row["correct"], _percent(row["subgraph_success"]), row["as_score"],
            _interval(row["as_interval"]), row["as_covered"], row["g_mean"], _interval(row["g_interval"]),
            row["gpu_g_mean"], _interval(row["gpu_interval"]), row["coverage"],
        ]
        for name, row in rows.items()
    ]  # fmt: skip
    if is_timed:
        return render_table(_ROW_HEADER, cells)
    return render_table([*_ROW_HEADER[:_UNTIMED], _ROW_HEADER[-1]], [[*row[:_UNTIMED], row[-1]] for row in cells])


def _groups(groups: Sequence[Mapping[str, Any]], *, is_timed: bool, is_compared: bool) -> str:
    header, keys = ["group", "graphs", "with a pass", "CORRECT"], ["group", "graphs", "with_pass", "correct"]
    title = "by operator family, by dtype, and by the length of an eager call"
    if is_timed:
        header += ["AS", "x host", "x GPU"]
        keys += ["as_score", "g_mean", "gpu_g_mean"]
        title += "; AS and x of the graphs with a pass"
    if is_timed and is_compared:
        header += ["compared", "AS", "Inductor's", "x host", "Inductor's"]
        keys += ["compared", "as_expert", "as_inductor", "x_expert", "x_inductor"]
        title += "; compared: the same graphs, one of each task, without guards"
    return f"{title}\n{render_table(header, [[group[key] for key in keys] for group in groups])}"


def _worst(worst: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        (row["task"][:12], row["title"][:36], f"{row['correct']}/{row['graphs']}", row["outcome"], row["g_mean"],
         row["why"][:NUM_WHY])
        for row in worst
    ]  # fmt: skip
    header = ("task", "title", "CORRECT", "outcome", "x host", "why")
    return f"the worst {len(rows)} tasks with a pass\n{render_table(header, rows)}" if rows else ""


def _stages(stages: Mapping[str, Mapping[str, float]], wall_s: float) -> str:
    seen = {stage for of_row in stages.values() for stage in of_row}
    names = sorted(seen, key=lambda stage: _STAGES.index(stage) if stage in _STAGES else len(_STAGES))
    rows = [[row, *(round(of_row.get(stage, 0.0), 1) for stage in names)] for row, of_row in stages.items()]
    title = f"seconds by stage, over all evaluations (this run took {wall_s:.0f} s, with judges side by side)"
    return f"{title}\n{render_table(('row', *names), rows)}"


def _head(figures: Mapping[str, Any]) -> str:
    share, failures = figures["share"], figures["harness_failures"]
    lines = [
        f"{figures['tasks']}: {figures['asked']} tasks; {figures['sampled']} in random order (seed {figures['seed']}); "
        f"reached {figures['reached']} of them ({figures['reached'] / max(figures['sampled'], 1):.0%})"
    ]
    if figures["was_cut_off"]:
        lines.append(
            "cut off by --max-seconds: those reached are a random sample of the set; --resume goes on"
            + (f" ({figures['beyond']} more ended behind the first that did not, and are kept)"
               if figures["beyond"] else "")
        )  # fmt: skip
    if figures["resumed"]:
        lines.append(f"{figures['resumed']} of them were evaluated by an earlier run, with the same pass")
    if failures:
        lines.append(
            f"{len(failures)} tasks on which the harness failed, in no figure: {next(iter(failures.values()))}"
        )
    if share["of"]:
        low, high = share["interval"]
        lines.append(
            f"every graph CORRECT: {share['correct']} of {share['of']} tasks = {share['share']:.1%} "
            f"(exact binomial 95%: {low:.1%} to {high:.1%})"
        )
    return "\n".join(lines)


def _planning(planning: Mapping[str, Any]) -> str:
    plans = planning["plans"]
    text = (
        f"planned whole: {plans['whole']}; in part: {plans['part']}; not at all: {plans['none']}; "
        f"the expert failed: {plans['error']}"
    )
    reasons = list(planning["reasons"].items())
    if not reasons:
        return text
    rows = [(c.get("none", 0) + c.get("error", 0), c.get("part", 0), reason) for reason, c in reasons[:MAX_REASONS]]
    more = f"\nand {len(reasons) - MAX_REASONS} more reasons" if len(reasons) > MAX_REASONS else ""
    return f"{text}\n{render_table(('not at all', 'in part', 'reason'), rows)}{more}"


def _comparison(name: str, found: Mapping[str, Any]) -> str:
    rows = {ROW_NAMES[row]: figures for row, figures in found["rows"].items()}
    text = (
        f"like for like, {name}: {found['graphs']} of {found['asked']} graphs, one of each task with a pass, speedups "
        f"over plain eager\n{_table(rows, is_timed=True)}"
    )
    over = found["over_inductor"]
    if over is None or not over["graphs"]:
        return text
    gpu = f", GPU time x{over['gpu_ratio']:.3f}" if over["gpu_ratio"] else ""
    ratio = f"x{over['ratio']:.3f} ({_interval(over['ratio_interval'])}){gpu}" if over["ratio"] else "-"
    return (
        f"{text}\nexpert over TorchInductor: AS {over['as_ratio']:.3f} ({_interval(over['as_ratio_interval'])}); both "
        f"CORRECT on {over['both_correct']}: {ratio}, faster on {over['faster']}"
    )


def _interval(interval: Sequence[float] | None) -> str:
    return "-" if interval is None else f"{interval[0]:.3f}..{interval[1]:.3f}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"
