"""Figures printed in the papers, to stand beside ours: another machine and other tasks, so for orientation only."""

from __future__ import annotations

from typing import Any

PASSNET_TABLE_1: dict[str, Any] = {
    "source": "PassNet, Table 1: PassBench, 200 fusible tasks, 2,060 graphs, NVIDIA A30, PyTorch 2.9.1",
    "note": "another machine and another task set: to be read beside ours, not compared with them",
    "columns": ["fast_1 %", "sample CR %", "subgraph CR %", "G-mean", "AS"],
    "rows": [
        ["Eager", 100.0, 100.0, 100.0, 1.000, 1.000],
        ["Inductor (default mode)", 20.3, 64.5, 85.0, 0.846, 0.706],
        ["GPT-5.4", 7.4, 47.0, 54.6, 0.821, 0.410],
        ["Claude-Opus-4.6", 9.8, 40.0, 48.6, 0.922, 0.410],
        ["Claude-Sonnet-4.6", 9.2, 52.0, 61.9, 0.835, 0.448],
        ["GLM-5.1", 4.8, 30.5, 33.5, 0.844, 0.240],
        ["MiniMax-M2.7", 1.0, 23.5, 23.0, 0.653, 0.208],
        ["Qwen3-4B", 0.2, 1.0, 1.3, 0.953, 0.108],
        ["Qwen3-4B after SFT", 3.0, 27.5, 28.5, 0.808, 0.240],
        ["Qwen3-30B-A3B", 0.6, 7.5, 11.8, 0.693, 0.139],
        ["Qwen3-30B-A3B after SFT", 5.3, 44.0, 48.8, 0.809, 0.371],
    ],
}

PASSNET_APPENDIX_G: dict[str, Any] = {
    "source": "PassNet, Appendix G: TorchInductor, default mode, 9,526 graphs, NVIDIA A30, PyTorch 2.9.1",
    "success": 0.845,
    "kernel_speedups": {"below 1": 0.083, "1 to 1.2": 0.266, "1.2 to 2": 0.374, "2 and more": 0.272},
    "slowdowns": 0.43,
    # cause -> share of the slowdowns, median speedup
    "causes": {
        "kernels slower": (0.183, 0.86),
        "under 15 nodes": (0.615, 0.68),
        "eager under 2 ms": (0.187, 0.89),
        "other": (0.015, 0.99),
    },
    "by_nodes": {"1-5": 0.858, "30-50": 0.130},
    "dispatch_us": 140.0,
    "precision": {"bitwise_equal": 0.397, "within_1e-6": 0.815, "from_1e-3": 0.046},
}
