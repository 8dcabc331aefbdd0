"""Inline SVG charts: bars and lines. Colours come from the page's variables, so that they follow light and dark.

A chart repeats what a table on the page says; its label says what it shows, for readers who do not see it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from markupsafe import Markup, escape

NUM_COLOURS = 6
"""--series-0 .. --series-5 in style.css.j2; lines also differ by their dashes."""
_DASHES = ("none", "7 4", "2 4", "10 4 2 4", "12 6", "4 2")
_WIDTH, _LINE_HEIGHT = 640, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 16, 28, 44
_BAR, _BAR_GAP, _LABEL = 20, 8, 190
_NUM_TICKS = 5
_MAX_WHOLE_TICKS = 8

Points = Sequence[tuple[float, float]]


def bar_chart(values: Mapping[str, float | None], *, label: str) -> Markup:
    """Horizontal bars from 0, one a name; None is drawn as a dash."""
    largest = max([value for value in values.values() if value is not None], default=0.0) or 1.0
    room = _WIDTH - _LABEL - 70
    parts = []
    for index, (name, value) in enumerate(values.items()):
        y = index * (_BAR + _BAR_GAP)
        width = room * (value or 0.0) / largest
        shown = name if len(name) <= 26 else f"{name[:25]}\u2026"
        parts.append(
            f'<text x="{_LABEL - 10}" y="{y + 15}" text-anchor="end">{escape(shown)}</text>'
            f'<rect x="{_LABEL}" y="{y}" width="{width:.1f}" height="{_BAR}" rx="2" fill="var(--series-0)"/>'
            f'<text x="{_LABEL + width + 8:.1f}" y="{y + 15}">{"-" if value is None else f"{value:.3f}"}</text>'
        )
    return _svg(parts, len(values) * (_BAR + _BAR_GAP), label)


def line_chart(
    series: Mapping[str, Points], *, label: str, x_label: str, y_label: str, with_dots: bool = False
) -> Markup:
    """One line a series over common axes; y starts at 0 where no value is negative. Empty series are left out.

    with_dots: also a dot at each point, for a few points that were measured one by one.
    """
    series = {name: points for name, points in series.items() if points}
    if not series:
        return Markup("")
    xs = [x for points in series.values() for x, _ in points]
    ys = [y for points in series.values() for _, y in points]
    x_low, x_high = min(xs), max(xs)
    y_low, y_high = min(0.0, *ys), max(ys)
    x_span, y_span = (x_high - x_low) or 1.0, (y_high - y_low) or 1.0
    plot_width, plot_height = _WIDTH - _LEFT - _RIGHT, _LINE_HEIGHT - _TOP - _BOTTOM

    def place(x: float, y: float) -> tuple[float, float]:
        return _LEFT + plot_width * (x - x_low) / x_span, _TOP + plot_height * (1 - (y - y_low) / y_span)

    parts = []
    for value in _ticks(y_low, y_low + y_span, [y_low, y_high]):
        _, y = place(x_low, value)
        parts.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="var(--rule)"/>'
            f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:.3g}</text>'
        )
    for value in _ticks(x_low, x_high, xs):
        x, _ = place(value, y_low)
        parts.append(f'<text x="{x:.1f}" y="{_LINE_HEIGHT - 24}" text-anchor="middle">{value:.5g}</text>')
    for index, points in enumerate(series.values()):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in points))
        colour, dash = f"var(--series-{index % NUM_COLOURS})", _DASHES[index % len(_DASHES)]
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"/>'
        )
        if with_dots or len(points) == 1:
            places = [place(*point) for point in points]
            parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
    middle = _LEFT + plot_width / 2
    parts.append(f'<text x="{middle:.0f}" y="{_LINE_HEIGHT - 6}" text-anchor="middle">{escape(x_label)}</text>')
    parts.append(f'<text x="{_LEFT - 8}" y="14">{escape(y_label)}</text>')
    return _svg(parts, _LINE_HEIGHT, label) + (_legend(series) if len(series) > 1 else Markup(""))


def _ticks(low: float, high: float, values: Sequence[float]) -> list[float]:
    """Whole numbers where all values are whole (levels, turns, steps), else a few evenly spaced ones."""
    if all(float(value).is_integer() for value in values):
        step = max(1, math.ceil((high - low) / (_MAX_WHOLE_TICKS - 1)))
        return [low + index * step for index in range(int((high - low) // step) + 1)]
    return [low + (high - low) * index / (_NUM_TICKS - 1) for index in range(_NUM_TICKS)]


def _legend(series: Mapping[str, Points]) -> Markup:
    items = "".join(
        f'<li><svg width="34" height="10" aria-hidden="true"><line x1="0" x2="34" y1="5" y2="5" stroke-width="3" '
        f'stroke="var(--series-{index % NUM_COLOURS})" stroke-dasharray="{_DASHES[index % len(_DASHES)]}"/></svg> '
        f"{escape(name)}</li>"
        for index, name in enumerate(series)
    )
    return Markup(f'<ul class="legend">{items}</ul>')


def _svg(parts: Sequence[str], height: int, label: str) -> Markup:
    text = escape(label)
    return Markup(
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{text}"><title>{text}</title>'
        f"{''.join(parts)}</svg>"
    )
