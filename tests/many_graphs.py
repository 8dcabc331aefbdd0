"""A task of hundreds of realistic graphs: the group sizes of PassNet go up to 396. Not a test."""

from __future__ import annotations

import random

from data.task import Task
from tests.helpers import make_graph

_BODY = """
        tmp_0 = in_2 + in_3
        tmp_1 = torch.nn.functional.dropout(tmp_0, 0.0, False, False)
        {extra}
        tmp_3 = torch.nn.functional.layer_norm(tmp_2, ({width},), in_1, in_0, {eps})
        tmp_4 = tmp_3.transpose(1, 2)
        tmp_5 = tmp_4.reshape({batch}, {width}, {side}, {side})
        return (tmp_2, tmp_5)
"""
_EXTRAS = [f"tmp_2 = torch.nn.functional.{name}(tmp_1)" for name in ("gelu", "relu", "silu", "mish", "hardswish")]
_WIDTHS = (32, 48, 64, 96, 128, 160, 192, 256, 320, 384, 512, 640, 768, 1024, 1280)


def many_graphs_task(num_graphs: int = 396, *, num_structures: int = 1) -> Task:
    """One task; graphs differ in shapes, dtypes and literals, and in operators where num_structures asks for that."""
    rng = random.Random(0)
    graphs = []
    for index in range(num_graphs):
        kind = index % num_structures
        extra = "\n        ".join(
            [_EXTRAS[kind % len(_EXTRAS)], *["tmp_2 = torch.nn.functional.relu(tmp_2)"] * (kind // len(_EXTRAS))]
        )
        width, side, batch = rng.choice(_WIDTHS), rng.choice((7, 14, 16, 24, 28, 32, 56)), rng.choice((1, 2, 4, 6, 8))
        dtype = rng.choice(("float32", "float16", "bfloat16"))
        body = _BODY.format(extra=extra, width=width, eps=rng.choice(("1e-05", "1e-06")), batch=batch, side=side)
        shape = [batch, side * side, width]
        specs = {"in_0": ([width], dtype), "in_1": ([width], dtype), "in_2": (shape, dtype), "in_3": (shape, dtype)}
        graphs.append(make_graph(f"graphs/{rng.getrandbits(64):016x}", body, specs))
    return Task("many", tuple(graphs))
