"""Figures and tables of `passwright bench bi` from its rows; no kernel runs here."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from scripts.benches.output import Target, render_table

MIN_DETECTED, MAX_REJECTED = 0.97, 0.01
MAX_STATIC_MS, MAX_BOTH_MS = 3.0, 10.0
WAYS = ("static", "dynamic", "both")


def summarise(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Shares with exact binomial intervals, overlaps, medians of milliseconds, the kernels that were misjudged."""
    ran = all("dynamic" in row for row in rows)
    ways = WAYS if ran else ("static",)
    variant = [row for row in rows if row["label"] == "variant"]
    invariant = [row for row in rows if row["label"] == "invariant"]
    judged = [*variant, *invariant]
    figures: dict[str, Any] = {
        "num_variant": len(variant),
        "num_invariant": len(invariant),
        "num_harmless": sum(row["label"] == "harmless" for row in rows),
        "left_out": [row["name"] for row in rows if row["label"] not in ("variant", "invariant", "harmless")],
        "detected": {way: share([is_flagged(row, way) for row in variant]) for way in ways},
        "rejected": {way: share([is_flagged(row, way) for row in invariant]) for way in ways},
        "harmless_flagged": {
            way: share([is_flagged(row, way) for row in rows if row["label"] == "harmless"]) for way in ways
        },
        "ms": {way: median([milliseconds(row, way) for row in judged]) for way in ways},
        "by_mechanism": _by(variant, "mechanism", ways),
        "by_family": _by(variant, "family", ways),
        "missed": {way: [row["name"] for row in variant if not is_flagged(row, way)] for way in ways},
        "wrongly_rejected": {way: [row["name"] for row in invariant if is_flagged(row, way)] for way in ways},
    }
    if ran:
        pairs = [(is_flagged(row, "static"), is_flagged(row, "dynamic")) for row in variant]
        figures["unique"] = {"static": pairs.count((True, False)), "dynamic": pairs.count((False, True))}
        figures["overlap"] = pairs.count((True, True))
    return figures


def is_flagged(row: dict[str, Any], way: str) -> bool:
    """Whether a way rejects the kernel; what is not deterministic is no row of its own."""
    dynamic = row.get("dynamic") in ("variant", "not deterministic")
    return {"static": row["static"], "dynamic": dynamic, "both": row["static"] or dynamic}[way]


def milliseconds(row: dict[str, Any], way: str) -> float | None:
    """As the paper counts; "both" exits early after a static finding."""
    if way == "static" or (way == "both" and row["static"]):
        return float(row["static_ms"])
    dynamic = row.get("dynamic_ms")
    if dynamic is None:
        return None
    return float(dynamic) + (float(row["static_ms"]) if way == "both" else 0.0)


def share(flags: Sequence[bool]) -> dict[str, Any]:
    """Count, share, and the exact (Clopper-Pearson) 95% interval."""
    from scipy.stats import binomtest

    if not flags:
        return {"count": 0, "of": 0, "share": None, "interval": None}
    interval = binomtest(sum(flags), len(flags)).proportion_ci(method="exact")
    return {
        "count": sum(flags),
        "of": len(flags),
        "share": sum(flags) / len(flags),
        "interval": [round(float(interval.low), 4), round(float(interval.high), 4)],
    }


def median(values: Sequence[float | None]) -> float | None:
    """Of those that were measured."""
    known = [value for value in values if value is not None]
    return round(statistics.median(known), 4) if known else None


def _by(rows: Sequence[dict[str, Any]], key: str, ways: Sequence[str]) -> dict[str, dict[str, Any]]:
    groups = sorted({str(row[key]) for row in rows})
    return {
        group: {way: share([is_flagged(row, way) for row in rows if str(row[key]) == group]) for way in ways}
        for group in groups
    }


def render(figures: dict[str, Any]) -> str:
    """The main table, who finds what, and every kernel that was misjudged by both."""
    ways = list(figures["detected"])
    main = render_table(
        ("", "detected", "of", "95%", "falsely rejected", "of", "95%", "harmless flagged", "median ms"),
        [
            [way, *_cells(figures["detected"][way]), *_cells(figures["rejected"][way]),
             figures["harmless_flagged"][way]["count"], figures["ms"][way]]
            for way in ways
        ],
    )  # fmt: skip
    lines = [
        f"{figures['num_variant']} variant, {figures['num_invariant']} invariant, {figures['num_harmless']} harmless "
        f"kernels; {len(figures['left_out'])} left out",
        "",
        main,
    ]
    if "overlap" in figures:
        unique = figures["unique"]
        lines.append(f"found by static alone {unique['static']}, dynamic alone {unique['dynamic']}, by both "
                     f"{figures['overlap']}")  # fmt: skip
    for title, groups in (("mechanism", figures["by_mechanism"]), ("family", figures["by_family"])):
        rows = [
            [group, found[ways[0]]["of"], *(found[way]["count"] for way in ways)] for group, found in groups.items()
        ]
        lines += ["", render_table((title, "variant", *(f"by {way}" for way in ways)), rows)]
    last = ways[-1]
    lines += ["", f"missed ({last}): {', '.join(figures['missed'][last]) or 'none'}"]
    lines += [f"falsely rejected ({last}): {', '.join(figures['wrongly_rejected'][last]) or 'none'}"]
    return "\n".join([*lines, f"wall time {figures['wall_s']} s"])


def _cells(found: dict[str, Any]) -> list[object]:
    interval = found["interval"]
    return [found["count"], found["of"], "-" if interval is None else f"{interval[0]:.3f}-{interval[1]:.3f}"]


def targets(figures: dict[str, Any], device: str) -> list[Target]:
    """The issue's; milliseconds of launches on a GPU only."""
    last = list(figures["detected"])[-1]
    found = [Target("static: median ms a kernel", figures["ms"]["static"], MAX_STATIC_MS, "at most")]
    if last == "both":
        found += [
            Target("both: variant kernels detected", figures["detected"]["both"]["share"], MIN_DETECTED, "at least"),
            Target("both: invariant kernels rejected", figures["rejected"]["both"]["share"], MAX_REJECTED, "at most"),
        ]
        if device.startswith("cuda"):
            found.append(Target("both: median ms a kernel", figures["ms"]["both"], MAX_BOTH_MS, "at most"))
    return found
