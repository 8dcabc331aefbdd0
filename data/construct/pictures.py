"""Pictures of the docs, drawn from what the code computes: `python -m data.construct.pictures folding --out FILE`.

Plain SVG text, the same bytes every time; nothing is drawn that was not computed just then.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from data.construct.folding import FoldResult, fold

EXAMPLE = {
    "ResNet, first layers": "conv2d batch_norm relu max_pool2d",
    "ResNet, block that halves the size": "conv2d batch_norm relu conv2d batch_norm conv2d batch_norm add relu",
    "MobileNetV3, block with a gate": (
        "conv2d batch_norm hardswish conv2d batch_norm hardswish adaptive_avg_pool2d conv2d relu conv2d hardsigmoid "
        "mul conv2d batch_norm"
    ),
    "VGG, first block": "conv2d batch_norm relu conv2d batch_norm relu max_pool2d",
}
"""Operators of four parts of well-known networks, in order of execution."""

_CHARACTER, _PAD, _GAP = 6.7, 6, 4
_BOX_HEIGHT, _ROW_HEIGHT, _TITLE_HEIGHT, _MARGIN = 20, 40, 34, 14
_COLOURS = ("#cfe3ff", "#ffd9a8", "#cdeac0", "#f3c6e0")
_PLAIN = "#f2f2f2"


def example_folds() -> FoldResult:
    """The paper's example: [conv2d, batch_norm] -> a, [a, relu] -> b."""
    return fold([text.split() for text in EXAMPLE.values()], max_folds=2, min_ops=2)


def folding_svg(result: FoldResult, titles: Sequence[str] = ()) -> str:
    """The sequences before folding and after each fold, one panel each, as SVG text; titles: one a sequence.

    Rules are shown as a, b, c, ... in the order of folding.
    """
    letters = {rule.symbol: chr(ord("a") + index % 26) for index, rule in enumerate(result.rules)}
    drawing = _Drawing()
    for num_folds in range(len(result.rules) + 1):
        drawing.line(_heading(result, num_folds, letters), size=13, bold=True, height=_TITLE_HEIGHT)
        for index, sequence in enumerate(_after(result, num_folds)):
            if index < len(titles):
                drawing.line(titles[index], size=10, bold=False, height=_BOX_HEIGHT - 6)
            drawing.boxes(sequence, letters)
    return drawing.text()


def _heading(result: FoldResult, num_folds: int, letters: Mapping[str, str]) -> str:
    if num_folds == 0:
        return "Operators of the corpus, in order"
    rule = result.rules[num_folds - 1]
    run = ", ".join(letters.get(symbol, symbol) for symbol in rule.sequence)
    score = f"score ({len(rule.sequence)} - 1) x ({rule.count} - 1) = {rule.score}"
    return f"Fold {num_folds}: [{run}] -> {letters[rule.symbol]}, {rule.count} times, {score}"


def _after(result: FoldResult, num_folds: int) -> list[tuple[str, ...]]:
    """The sequences after the first folds: rules that came later are written out again."""
    later = {rule.symbol: rule.sequence for rule in result.rules[num_folds:]}
    sequences = list(result.folded)
    while any(symbol in later for sequence in sequences for symbol in sequence):
        sequences = [
            tuple(part for symbol in sequence for part in later.get(symbol, (symbol,))) for sequence in sequences
        ]
    return sequences


class _Drawing:
    """Rows from the top down."""

    def __init__(self) -> None:
        self.y = float(_MARGIN)
        self.width = 0.0
        self.parts: list[str] = []

    def line(self, text: str, *, size: int, bold: bool, height: int) -> None:
        weight = ' font-weight="bold"' if bold else ""
        baseline = self.y + height - 6
        self.parts.append(f'<text x="{_MARGIN}" y="{baseline:g}" font-size="{size}"{weight}>{escape(text)}</text>')
        self.width = max(self.width, _MARGIN + len(text) * size * 0.6)
        self.y += height

    def boxes(self, sequence: Sequence[str], letters: Mapping[str, str]) -> None:
        order = list(letters)
        x = float(_MARGIN)
        for symbol in sequence:
            shown = letters.get(symbol, symbol)
            colour = _COLOURS[order.index(symbol) % len(_COLOURS)] if symbol in letters else _PLAIN
            width = round(len(shown) * _CHARACTER + 2 * _PAD, 1)
            self.parts.append(
                f'<rect x="{x:g}" y="{self.y:g}" width="{width:g}" height="{_BOX_HEIGHT}" rx="3" fill="{colour}" '
                f'stroke="#555"/>'
            )
            middle = round(x + width / 2, 1)
            self.parts.append(
                f'<text x="{middle:g}" y="{self.y + 14:g}" font-size="11" text-anchor="middle">{escape(shown)}</text>'
            )
            x = round(x + width + _GAP, 1)
        self.width = max(self.width, x)
        self.y += _ROW_HEIGHT - 10

    def text(self) -> str:
        width, height = round(self.width + _MARGIN), round(self.y + _MARGIN)
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" font-family="monospace" fill="#111">'
        )
        return "\n".join([head, '<rect width="100%" height="100%" fill="#fff"/>', *self.parts, "</svg>"]) + "\n"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("picture", choices=["folding"])
    parser.add_argument("--out", type=Path, required=True, help="SVG file to write")
    options = parser.parse_args(argv)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(folding_svg(example_folds(), list(EXAMPLE)), encoding="utf-8")


if __name__ == "__main__":
    main()
