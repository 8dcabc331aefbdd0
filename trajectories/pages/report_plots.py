"""Plots of a report as inline SVG, complete without a script: assets/report/plots.js adds the values under the pointer.

A series has one colour and one dash on the whole page. Data lie on each point (data-x, data-y), so that page and script
cannot disagree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape

from trajectories.pages.charts import NUM_COLOURS
from trajectories.pages.code import visible

_DASHES = ("none", "7 4", "2 4", "10 4 2 4", "12 6", "4 2")
_WIDTH, _HEIGHT = 460, 290
_LEFT, _RIGHT, _TOP, _BOTTOM = 50, 14, 26, 40
_BAR_WIDTH, _BAR_HEIGHT = 90, 12
_NUM_TICKS = 6


@dataclass(frozen=True)
class Series:
    """One line of a plot."""

    name: str
    points: Sequence[tuple[float, float]]
    index: int
    """Of its colour and dash."""
    intervals: Sequence[tuple[float, float] | None] = ()
    """Of each point, if it has any."""


def plot(
    series: Sequence[Series],
    *,
    label: str,
    x_label: str,
    y_label: str,
    reference: float | None = None,
    show_dots: bool = True,
    format_y: Callable[[float], str] = lambda value: f"{value:.3f}",
) -> Markup:
    """The plot with its legend; empty without a point. reference: a value of y to draw across, such as eager's 1."""
    series = [each for each in series if each.points]
    if not series:
        return Markup("")
    frame = _Frame(series, reference)
    parts = frame.axes(x_label, y_label)
    if reference is not None:
        y = frame.y(reference)
        parts.append(f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}" class="reference"/>')
    parts += [_series_parts(each, frame, show_dots, format_y) for each in series]
    text = escape(label)
    svg = (
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{text}" '
        f'data-x="{escape(x_label)}">'
        f'{"".join(parts)}<path class="cursor" d="M0 {_TOP}V{_HEIGHT - _BOTTOM}"/></svg>'
    )
    return Markup(
        f'<figure class="plot" tabindex="0"><figcaption>{text}</figcaption>{svg}{_legend(series)}'
        '<div class="tip" hidden></div></figure>'
    )


def change_bar(change: Mapping[str, Any]) -> Markup:
    """A paired change and its interval around "no change": ratios from a quarter to four times, else -1 to 1."""
    low, high = change["interval"] or (change["change"], change["change"])

    def place(value: float) -> float:
        share = math.log(max(value, 1e-9)) / math.log(4) if change["is_ratio"] else value
        return _BAR_WIDTH * (0.5 + 0.5 * min(max(share, -1.0), 1.0))

    x, width = place(change["change"]), max(place(high) - place(low), 1.0)
    same = 1.0 if change["is_ratio"] else 0.0
    kind = "better" if low > same else "worse" if high < same else "unsure"
    return Markup(
        f'<svg class="change {kind}" width="{_BAR_WIDTH}" height="{_BAR_HEIGHT}" aria-hidden="true">'
        f'<path class="axis" d="M0 {_BAR_HEIGHT / 2}H{_BAR_WIDTH}M{_BAR_WIDTH / 2} 0V{_BAR_HEIGHT}"/>'
        f'<rect x="{place(low):.1f}" y="3" width="{width:.1f}" height="{_BAR_HEIGHT - 6}"/>'
        f'<path class="value" d="M{x:.1f} 1V{_BAR_HEIGHT - 1}"/></svg>'
    )


class _Frame:
    """The axes: y starts at 0 where no value is negative."""

    def __init__(self, series: Sequence[Series], reference: float | None) -> None:
        xs = [x for each in series for x, _ in each.points]
        ys = [y for each in series for _, y in each.points]
        ys += [bound for each in series for interval in each.intervals if interval for bound in interval]
        ys += [] if reference is None else [reference]
        self.x_ticks = _ticks(min(xs), max(xs), whole=all(float(x).is_integer() for x in xs))
        self.x_low, self.x_high = min(xs), max(xs)
        self.y_ticks = _ticks(min(0.0, *ys), max(ys), whole=False)
        self.y_low, self.y_high = self.y_ticks[0], max(self.y_ticks[-1], max(ys))

    def x(self, value: float) -> float:
        span = (self.x_high - self.x_low) or 1.0
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (value - self.x_low) / span

    def y(self, value: float) -> float:
        span = (self.y_high - self.y_low) or 1.0
        return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - (value - self.y_low) / span)

    def axes(self, x_label: str, y_label: str) -> list[str]:
        parts = []
        for value in self.y_ticks:
            y = self.y(value)
            parts.append(
                f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}" class="grid"/>'
                f'<text x="{_LEFT - 7}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>'
            )
        parts += [
            f'<text x="{self.x(value):.1f}" y="{_HEIGHT - 23}" text-anchor="middle">{value:g}</text>'
            for value in self.x_ticks
            if self.x_low <= value <= self.x_high
        ]
        middle = _LEFT + (_WIDTH - _LEFT - _RIGHT) / 2
        parts.append(
            f'<text x="{middle:.0f}" y="{_HEIGHT - 5}" text-anchor="middle" class="name">{escape(x_label)}</text>'
        )
        parts.append(f'<text x="4" y="14" class="name">{escape(y_label)}</text>')
        return parts


def _series_parts(series: Series, frame: _Frame, show_dots: bool, format_y: Callable[[float], str]) -> str:
    colour = series.index % NUM_COLOURS
    places = [(frame.x(x), frame.y(y)) for x, y in series.points]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    parts = [f'<g class="series s{colour}" data-name="{escape(visible(series.name))}">']
    for (x, _), interval in zip(places, series.intervals, strict=False):
        if interval:
            parts.append(f'<path class="interval" d="M{x:.1f} {frame.y(interval[0]):.1f}V{frame.y(interval[1]):.1f}"/>')
    dash = _DASHES[series.index % len(_DASHES)]
    parts.append(f'<polyline points="{line}" stroke-dasharray="{dash}"/>')
    kind = "dot" if show_dots or len(places) == 1 else "dot hidden"
    for position, ((x, y), (raw_x, raw_y)) in enumerate(zip(places, series.points, strict=True)):
        bounds = series.intervals[position] if position < len(series.intervals) else None
        shown = format_y(raw_y) + (f" ({format_y(bounds[0])} to {format_y(bounds[1])})" if bounds else "")
        parts.append(
            f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="3" data-x="{raw_x:g}" data-y="{escape(shown)}"/>'
        )
    return "".join([*parts, "</g>"])


def _legend(series: Sequence[Series]) -> str:
    items = "".join(
        f'<li><button type="button" data-series="{escape(visible(each.name))}" aria-pressed="true">'
        f'<svg width="26" height="10" class="s{each.index % NUM_COLOURS}" aria-hidden="true"><path d="M0 5H26" '
        f'stroke-dasharray="{_DASHES[each.index % len(_DASHES)]}"/></svg>{escape(visible(each.name))}</button></li>'
        for each in series
    )
    return f'<ul class="legend">{items}</ul>' if len(series) > 1 else ""


def _ticks(low: float, high: float, *, whole: bool) -> list[float]:
    """Round values from at or below low to at or above high."""
    span = (high - low) or abs(high) or 1.0
    power = 10 ** math.floor(math.log10(span / _NUM_TICKS))
    step = next(size * power for size in (1, 2, 2.5, 5, 10) if span / (size * power) <= _NUM_TICKS)
    step = max(1.0, math.ceil(step)) if whole else step
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    return [round(index * step, 10) for index in range(first, last + 1)]
