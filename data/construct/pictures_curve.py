"""`python -m data.construct.pictures_curve resnet18 --out FILE.svg`: a model's prefix curve, measured, as a picture.

One step a statement: K(P), the kernels that the first P statements launch. Shaded stretches are the fusible ranges that
fusible.py takes from the curve. The picture is text; nothing in it is drawn by hand.
"""

from __future__ import annotations

import argparse
import itertools
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

import torch
from torch import nn

from data.construct.extract import capture
from data.construct.full_graph import full_graph
from data.construct.fusible import FusibleReport, analyse
from data.construct.statements import parse_program
from data.graph import MODEL_FILE, Graph

logger = logging.getLogger(__name__)

STEP, ROW = 16.0, 11.0
"""Pixels a statement and a kernel."""
LEFT, TOP, RIGHT = 46.0, 62.0, 14.0
"""Pixels around the plot."""
LETTER = 5.4
"""Pixels of the operators' names, which hang below the plot."""
TICK = 5
_STYLE = """
  text { font: 10px system-ui, sans-serif; fill: #333 }
  .title { font-size: 15px; font-weight: 600; fill: #111 }
  .note { font-size: 11px; fill: #555 }
  .library { fill: #999 }
  .range { fill: #f6b26b; fill-opacity: 0.4 }
  .grid { stroke: #e4e4e4 }
  .axis { stroke: #333 }
  .curve { fill: none; stroke: #1f4e79; stroke-width: 2 }
"""


def prefix_curve_svg(report: FusibleReport, operators: Sequence[str], *, title: str, note: str = "") -> str:
    """The curve of a report as SVG. operators: one name a statement. Raises ValueError if their numbers differ."""
    if len(operators) != len(report.kernels):
        raise ValueError(f"{len(operators)} operators for a curve of {len(report.kernels)} prefixes; give one for each")
    highest = max(report.kernels, default=0)
    width = LEFT + STEP * len(operators) + RIGHT
    bottom = TOP + ROW * highest
    height = bottom + 18 + LETTER * max(map(len, operators), default=0)
    in_range = {index for start, stop in report.ranges for index in range(start, stop)}
    parts = [f'<rect width="{width:g}" height="{height:g}" fill="#fff"/>']
    parts.append(f'<text class="title" x="{LEFT:g}" y="22">{escape(title)}</text>')
    parts.append(f'<text class="note" x="{LEFT:g}" y="40">{escape(note)}</text>')
    for start, stop in report.ranges:
        x, wide = LEFT + STEP * start, STEP * (stop - start)
        names = escape(" ".join(operators[start:stop]))
        parts.append(
            f'<rect class="range" x="{x:g}" y="{TOP:g}" width="{wide:g}" height="{bottom - TOP:g}">'
            f"<title>{start}..{stop - 1}: {names}</title></rect>"
        )
    for kernels in range(0, highest + 1, TICK):
        y = bottom - ROW * kernels
        parts.append(f'<path class="grid" d="M{LEFT:g} {y:g}H{width - RIGHT:g}"/>')
        parts.append(f'<text x="{LEFT - 6:g}" y="{y + 3:g}" text-anchor="end">{kernels}</text>')
    path = f"M{LEFT:g} {bottom:g}" + "".join(f"V{bottom - ROW * kernels:g}h{STEP:g}" for kernels in report.kernels)
    parts.append(f'<path class="axis" d="M{LEFT:g} {bottom:g}H{width - RIGHT:g}"/>')
    parts.append(f'<path class="curve" d="{path}"/>')
    for index, name in enumerate(operators):
        x, y = LEFT + STEP * (index + 0.5) + 3, bottom + 8
        shown = "" if index in in_range else ' class="library"'
        parts.append(
            f'<text{shown} x="{x:g}" y="{y:g}" text-anchor="end" transform="rotate(-65 {x:g} {y:g})">'
            f"{escape(name)}</text>"
        )
    middle = (TOP + bottom) / 2
    parts.append(
        f'<text class="note" x="14" y="{middle:g}" text-anchor="middle" transform="rotate(-90 14 {middle:g})">'
        "K(P), kernels of the first P operators</text>"
    )
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" role="img">\n<title>{escape(title)}</title>'
    )
    return "\n".join([head, f"<style>{_STYLE}</style>", *parts, "</svg>\n"])


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with BatchNorm, and a shortcut that is projected where the shape changes (ResNet)."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels:
            projection = nn.Conv2d(channels_in, channels, 1, stride, bias=False)
            self.shortcut = nn.Sequential(projection, nn.BatchNorm2d(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y += self.shortcut(x)
        return self.relu(y)


class ResNet18(nn.Module):
    """The ImageNet network of 18 layers, as its paper and torchvision have it."""

    def __init__(self, num_classes: int = 1000) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        widths = [64, 64, 64, 128, 128, 256, 256, 512, 512]
        blocks = [BasicBlock(a, b, 1 if a == b else 2) for a, b in itertools.pairwise(widths)]
        self.layers = nn.Sequential(*blocks)
        self.fc = nn.Linear(512, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = nn.functional.adaptive_avg_pool2d(self.layers(x), 1)
        return self.fc(torch.flatten(x, 1))


def resnet18_graph() -> Graph:
    """ResNet-18 with random weights on one image of 224 x 224 pixels, captured as one full graph."""
    torch.manual_seed(0)
    (captured,) = capture(ResNet18(), (torch.randn(1, 3, 224, 224),))
    return full_graph(captured, "resnet18", model_name="resnet18").graph


MODELS: dict[str, tuple[str, Callable[[], Graph]]] = {"resnet18": ("ResNet-18", resnet18_graph)}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model", choices=sorted(MODELS))
    parser.add_argument("--out", type=Path, required=True, help="SVG file to write")
    options = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    shown, build = MODELS[options.model]
    graph = build()
    report = analyse(graph, every_prefix=True)
    operators = parse_program(graph.model_source, f"{graph.name}/{MODEL_FILE}").operators
    fused = sum(stop - start for start, stop in report.ranges)
    title = f"{shown}: {len(operators)} operators, {report.kernels[-1]} kernels"
    note = (
        f"Every prefix measured (Inductor's Triton fusion rules, torch {torch.__version__.split('+')[0]}). "
        f"Shaded: {len(report.ranges)} fusible ranges, {fused} operators."
    )
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(prefix_curve_svg(report, operators, title=title, note=note), encoding="utf-8")
    logger.info("%s: %s. %s %d compiles", options.out, title, note, report.num_compiles)


if __name__ == "__main__":
    main()
