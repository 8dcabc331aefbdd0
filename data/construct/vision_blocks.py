"""CNN blocks in the manner of torchvision and of detection models, as plain modules with random weights."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from data.construct.example import Example


class ResidualBlock(nn.Module):
    """Conv, BN, ReLU twice with a shortcut (ResNet's basic block)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(y)) + x)


class SqueezeExcite(nn.Module):
    """Channel attention (SENet): pooled, two 1x1 convolutions, a sigmoid gate."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.reduce = nn.Conv2d(channels, channels // 4, 1)
        self.expand = nn.Conv2d(channels // 4, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pooled = nn.functional.adaptive_avg_pool2d(x, 1)
        gate = torch.sigmoid(self.expand(nn.functional.relu(self.reduce(pooled))))
        return x * gate


class InvertedResidual(nn.Module):
    """MobileNetV3's: expand, depthwise, hard-swish, squeeze-excite, project."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        inner = 2 * channels
        self.expand = nn.Conv2d(channels, inner, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(inner)
        self.act = nn.Hardswish()
        self.squeeze_excite = SqueezeExcite(inner)
        self.project = nn.Conv2d(inner, channels, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.act(self.bn1(self.expand(x)))
        return self.bn2(self.project(self.squeeze_excite(y))) + x


class ConcatGate(nn.Module):
    """A neck of a detector: two branches are concatenated and gated by themselves (YOLO's concat and SiLU)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.left = nn.Conv2d(channels, channels, 1)
        self.right = nn.Conv2d(channels, channels, 3, padding=1)
        self.fuse = nn.Conv2d(2 * channels, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        left, right = self.left(x), self.right(x)
        joined = torch.cat([left, right], 1)
        return self.fuse(joined * torch.sigmoid(joined))


class DiffusionResidual(nn.Module):
    """A diffusion U-Net's residual block: group norm, SiLU, convolution, twice, with a time embedding."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm1 = nn.GroupNorm(8, channels)
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.time = nn.Linear(64, channels)
        self.norm2 = nn.GroupNorm(8, channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        y = self.conv1(nn.functional.silu(self.norm1(x)))
        y = y + self.time(time)[:, :, None, None]
        return x + self.conv2(nn.functional.silu(self.norm2(y)))


def _images(size: str, channels: int) -> torch.Tensor:
    batch, side = (2, 16) if size == "small" else (2, 40)
    return torch.randn(batch, channels, side, side)


def _block(block: type[nn.Module], small: int, base: int) -> Callable[[str], Example]:
    def build(size: str) -> Example:
        channels = small if size == "small" else base
        return Example(block(channels), (_images(size, channels),))  # type: ignore[call-arg]

    return build


def _diffusion(size: str) -> Example:
    channels = 32 if size == "small" else 64
    return Example(DiffusionResidual(channels), (_images(size, channels), torch.randn(2, 64)))


BUILDERS: dict[str, Callable[[str], Example]] = {
    "residual_block": _block(ResidualBlock, 32, 64),
    "inverted_residual": _block(InvertedResidual, 24, 48),
    "concat_gate": _block(ConcatGate, 32, 48),
    "diffusion_residual": _diffusion,
}
