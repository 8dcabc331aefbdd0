"""A zoo of very small models, and of models that do what models of a real zoo do wrong. For the tests of workers."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping

import torch

from data.construct.example import Example
from data.construct.zoo_entry import ModelEntry

BASE = {"batch": 2, "width": 6}


class Mlp(torch.nn.Module):
    """Two statements more when wide is told so: then its graph is another one."""

    def __init__(self, *, wide_differs: bool = False, graph_break: bool = False, draws: bool = False) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
        self.norm = torch.nn.LayerNorm(8)
        self.wide_differs = wide_differs
        self.graph_break = graph_break
        self.draws = draws

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.gelu(self.linear(x)) + x
        if self.graph_break:
            torch._dynamo.graph_break()
        if self.wide_differs and x.shape[1] > BASE["width"]:
            y = y * 2
        if self.draws:
            y = y + torch.rand_like(y)
        return self.norm(y).reshape(x.shape[0], x.shape[1] * 8)


class Float32Only(Mlp):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.dtype != torch.float32:
            raise TypeError("float32 only")
        return super().forward(x)


class Hanging(torch.nn.Module):
    """Starts a process of its own first, as compilers do."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        child = os.fork()
        if child:
            print("child", child, flush=True)
        time.sleep(600)
        return x


class Crashing(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        os.kill(os.getpid(), signal.SIGKILL)
        return x


class Slow(Mlp):
    """Takes its time: long enough to be stopped in the middle of a model."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        _sleep()
        return super().forward(x)


@torch._dynamo.disable
def _sleep() -> None:
    time.sleep(0.3)


_MODELS = {
    "tiny.mlp": Mlp,
    "tiny.other": lambda: Mlp(wide_differs=True),
    "tiny.broken_up": lambda: Mlp(graph_break=True),
    "tiny.random": lambda: Mlp(draws=True),
    "tiny.float32_only": Float32Only,
    "tiny.hanging": lambda: Interpreted(Hanging()),
    "tiny.crashing": lambda: Interpreted(Crashing()),
    "tiny.slow": Slow,
}


class Interpreted(torch.nn.Module):
    """A module whose inside Dynamo does not look at."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.forward = torch._dynamo.disable(inner.forward)


def find_model(model_id: str) -> ModelEntry:
    if model_id not in _MODELS:
        raise ValueError(f"the zoo has no model {model_id!r}")
    return ModelEntry(model_id, "tiny", model_id.partition(".")[2], "other", "MIT", f"tests.tiny_zoo.{model_id}")


def list_models() -> list[ModelEntry]:
    return [find_model(model_id) for model_id in _MODELS]


def symbols_of(entry: ModelEntry) -> dict[str, int]:
    return dict(BASE)


def size_variants(entry: ModelEntry, num: int = 10) -> list[dict[str, int]]:
    return [dict(BASE), {"batch": 3, "width": 4}, {"batch": 1, "width": 9}][:num]


def build_example(entry: ModelEntry, sizes: Mapping[str, int], dtype: torch.dtype, *, seed: int = 0) -> Example:
    torch.manual_seed(seed)
    module = _MODELS[entry.model_id]().to(dtype).eval()
    return Example(module, (torch.randn(sizes["batch"], sizes["width"], 8, dtype=dtype),))
