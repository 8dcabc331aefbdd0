"""The judge's clock on equal sides (A/A): how far from 1 a speedup can be here without meaning anything.

Eager against eager in two confined processes, on a small graph (tens of microseconds on a GPU, where starting kernels
decides) and a larger one. For `passwright doctor` and benches; an evaluation measures its own floor on its own graphs.
"""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import dataclass

from data.graph import META_CLASS_PREFIX, Graph
from eval_harness.errors import HarnessError
from eval_harness.judge.clock import PairedClock
from eval_harness.judge.correctness import GraphFailure, reference_metas
from eval_harness.judge.device_lock import exclusive_use
from eval_harness.judge.graph_loading import load_baseline
from eval_harness.judge.looks import UnstableError
from eval_harness.judge.session import EAGER, Bench, Session
from eval_harness.presets import load_protocol
from eval_harness.retries import draw_seed

_SHAPES = {"cpu": {"small": (64, 256), "large": (1024, 1024)}, "cuda": {"small": (64, 256), "large": (8192, 2048)}}
MIN_RUNS = 2
"""A graph, whatever the time: one run says nothing of the spread."""


@dataclass(frozen=True)
class NoisePoint:
    """A/A runs of one graph."""

    graph: str
    """small or large."""
    latency_us: float | None
    """Median time of a call of eager. None, as the next two, where the machine did not hold still."""
    num_runs: int
    worst_deviation: float | None
    """Of a measured A/A speedup from 1, as a share: 0.02 is 2%."""
    half_width: float | None
    """Median over runs of half the 95% interval, as a share."""
    message: str = ""
    """Why there is no figure: the machine did not hold still."""


def measure_noise_floor(device: str, seconds: float = 8.0) -> list[NoisePoint]:
    """A/A runs of a small and a larger graph, each for about half the time and MIN_RUNS at least.

    Starts a zygote of its own (some seconds). Raises HarnessError if no worker starts or a graph fails in eager.
    """
    bench = Bench.open(device)
    try:
        kind = device.split(":")[0]
        return [_measure(bench, name, shape, seconds / 2) for name, shape in _SHAPES[kind].items()]
    finally:
        bench.close()


def _measure(bench: Bench, name: str, shape: tuple[int, int], seconds: float) -> NoisePoint:
    graph = _graph(name, shape)
    session = Session(bench, load_protocol("strict"), draw_seed(), is_baseline=True)
    ratios: list[float] = []
    half_widths: list[float] = []
    latencies: list[float] = []
    message = ""
    try:
        load_baseline(session, bench.trace(graph), EAGER)
        with exclusive_use(bench.device):
            metas = reference_metas(session, graph)
            started = time.monotonic()
            while len(ratios) < MIN_RUNS or time.monotonic() - started < seconds:
                clock = PairedClock(session, graph, metas, candidate=session.candidate, reference=session.reference)
                estimate = clock.measure(floor=0.0).estimate
                ratios.append(math.log(estimate.speedup))
                half_widths.append(estimate.half_width)
                latencies.append(estimate.reference_latency_us)
    except UnstableError as error:
        message = str(error)
    except GraphFailure as failure:
        raise HarnessError(f"eager against eager failed on {bench.device}: {failure.message}") from None
    finally:
        session.close()
    return NoisePoint(
        graph=name,
        latency_us=statistics.median(latencies) if latencies else None,
        num_runs=len(ratios),
        worst_deviation=math.expm1(max(map(abs, ratios))) if ratios else None,
        half_width=math.expm1(statistics.median(half_widths)) if half_widths else None,
        message=message,
    )


def _graph(name: str, shape: tuple[int, int]) -> Graph:
    """Three elementwise operators over one shape."""
    model = (
        "import torch\n\n\nclass GraphModule(torch.nn.Module):\n    def forward(self, in_0, in_1):\n"
        "        tmp_0 = in_0 + in_1\n        tmp_1 = torch.relu(tmp_0)\n        tmp_2 = tmp_1 * in_1\n"
        "        return (tmp_2,)\n"
    )
    metas = [
        f'class {META_CLASS_PREFIX}L_{argument}_:\n\tname = "{argument}"\n\tshape = {list(shape)}\n'
        f'\tdtype = "torch.float32"\n\tdevice = "cuda:0"\n\tmean = 0.0\n\tstd = 1.0\n'
        for argument in ("in_0", "in_1")
    ]
    return Graph(f"noise_{name}", {"model.py": model, "weight_meta.py": "\n\n".join(metas), "graph_net.json": "{}"})
