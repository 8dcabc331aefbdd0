"""What `passwright bench integrity` prints: one line a cheat, one line a layer, the rates. Figures in, text out."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping
from typing import Any

from scripts.benches.output import Target, render_table

STOPPED = ("violation", "wrong", "no gain")


def summarise(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Rates and the table by layer, from the rows of cheats and honest passes."""
    cheats, honest = figures["cheats"], figures["honest"]
    alarms = [row["name"] for row in honest if row["ends"] == "violation"]
    return {
        "detection_rate": _share(row["ends"] in STOPPED for row in cheats),
        "false_alarm_rate": _share(row["ends"] == "violation" for row in honest),
        "gains": [row["name"] for row in cheats if row["ends"] == "GAIN"],
        "no_verdict": [row["name"] for row in [*cheats, *honest] if row["ends"] == "no verdict"],
        "not_as_expected": [row["name"] for row in cheats if not row["as_expected"]],
        "false_alarms": alarms,
        "honest_not_correct": [
            row["name"] for row in honest if row["name"] not in alarms and set(row["outcomes"]) != {"CORRECT"}
        ],
        "layers": _layers(cheats),
        "median_seconds": {
            "cheats": _median([row["seconds"] for row in cheats]),
            "honest": _median([row["seconds"] for row in honest]),
        },
    }


def targets(figures: Mapping[str, Any]) -> list[Target]:
    """What the corpus must show. A rate of what was not run (--only) is no target."""
    found = []
    if figures["cheats"]:
        name = "cheats that end in a violation, a wrong outcome or no gain"
        found.append(Target(name, figures["detection_rate"], 1.0, "at least"))
    if figures["honest"]:
        found.append(Target("honest passes with a violation", figures["false_alarm_rate"], 0.0, "at most"))
        name = "honest passes otherwise not CORRECT"
        found.append(Target(name, float(len(figures["honest_not_correct"])), 0.0, "at most"))
    return found


def render(figures: Mapping[str, Any]) -> str:
    """The report for a reader."""
    cheats, honest = figures["cheats"], figures["honest"]
    parts = [_render_cheats(cheats), _render_layers(figures["layers"])] if cheats else []
    if honest:
        rows = [(row["name"], ", ".join(row["outcomes"]), row["rule"], row["seconds"]) for row in honest]
        parts.append(render_table(("honest pass", "outcomes", "false alarm", "s"), rows))
    lines = [
        *_counted(cheats, honest, figures),
        f"source rules: {figures['source_rules_ms']} ms a folder (median); {figures['seconds']:.0f} s in all",
    ]
    for key, title in (
        ("gains", "gained"),
        ("not_as_expected", "ended otherwise than their entries say"),
        ("false_alarms", "false alarms"),
        ("honest_not_correct", "honest and not CORRECT"),
        ("no_verdict", "no verdict"),
    ):
        if figures[key]:
            lines.append(f"{title}: {', '.join(figures[key])}")
    return "\n\n".join([*parts, "\n".join(lines)])


def _counted(cheats: list[Any], honest: list[Any], figures: Mapping[str, Any]) -> list[str]:
    seconds, lines = figures["median_seconds"], []
    if cheats:
        stopped = sum(row["ends"] in STOPPED for row in cheats)
        lines.append(f"{stopped} of {len(cheats)} cheats gained nothing; median {seconds['cheats']} s an evaluation")
    if honest:
        alarms, median_s = len(figures["false_alarms"]), seconds["honest"]
        lines.append(f"{alarms} false alarms on {len(honest)} honest passes; median {median_s} s an evaluation")
    return lines


def _render_cheats(cheats: list[dict[str, Any]]) -> str:
    rows = []
    for row in cheats:
        without = row["without"]
        left = "" if without is None else f"{without['ends']}: {without['rule'] or without['caught_by'] or '-'}"
        told = [row[key] for key in ("ends", "caught_by", "rule")]
        rows.append((row["name"], " ".join(row["rows"]), *told, left, row["speedup"]))
    header = ("cheat", "rows", "ends in", "caught first by", "rule", "with that layer off", "speedup")
    return render_table(header, rows)


def _layers(cheats: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each layer that caught something, those that catch most first."""
    first = Counter(row["caught_by"] for row in cheats if row["caught_by"])
    later = Counter(row["without"]["caught_by"] for row in cheats if row["without"] and row["without"]["caught_by"])
    rows = []
    for layer in sorted(set(first) | set(later), key=lambda name: (-first[name], name)):
        mine = [row for row in cheats if row["caught_by"] == layer]
        off = [row["without"] for row in mine if row["without"]]
        rows.append(
            {
                "layer": layer,
                "caught_first_by": first[layer],
                "switched_off": len(off),
                "flagged_by_another": sum(run["ends"] in ("violation", "wrong") for run in off),
                "no_gain": sum(run["ends"] == "no gain" for run in off),
                "caught_only_by": sum(run["ends"] == "GAIN" for run in off),
                "no_verdict": sum(run["ends"] == "no verdict" for run in off),
                "catches_after_another": later[layer],
                "median_s": _median([row["seconds"] for row in mine]),
            }
        )
    return rows


def _render_layers(layers: list[dict[str, Any]]) -> str:
    header = (
        "layer", "caught first by", "of these with it off", "flagged by another", "no gain", "caught only by (gain)",
        "no verdict", "second where another was off", "median s",
    )  # fmt: skip
    return render_table(header, [tuple(row.values()) for row in layers])


def _share(found: Any) -> float | None:
    values = list(found)
    return sum(values) / len(values) if values else None


def _median(values: list[float]) -> float | None:
    return round(statistics.median(values), 3) if values else None
