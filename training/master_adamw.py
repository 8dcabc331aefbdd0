"""MasterAdamW: AdamW for bfloat16 weights that loses no small step.

A bfloat16 weight of 0.02 cannot take a step below 6e-5: at a learning rate of 2e-5 most updates would round to nothing,
and the loss would still fall. Here each weight's lower 16 bits are kept in the optimizer's state, so that weight and
state together are an exact float32 master copy for 2 bytes more; the moments are float32. DeepSpeed and FSDP2 keep
masters of their own: this is for one process and for DDP.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

import torch

logger = logging.getLogger(__name__)

BYTES_PER_WEIGHT = 10
"""Of the state: lower bits, two float32 moments."""
_CHUNK = 1 << 24
"""Weights updated together when not compiled: temporaries stay below 1 GB."""


class MasterAdamW(torch.optim.Optimizer):
    """AdamW (decoupled weight decay). Parameters must be bfloat16 or float32; float32 ones need no lower bits."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        compiled: bool | None = None,
    ) -> None:
        """compiled: one kernel a parameter; None: on a GPU."""
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})
        self.compiled = compiled
        self._update: dict[bool, Callable[..., None]] = {False: _update}

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One step over all parameters that have a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            numbers: dict[tuple[int, torch.device], torch.Tensor] = {}
            for parameter in group["params"]:
                if parameter.grad is not None:
                    state = self._state_of(parameter)
                    key = (state["step"], parameter.device)
                    if key not in numbers:
                        numbers[key] = _numbers(group, *key)
                    self._step(parameter, state, numbers[key], group)
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As torch's, but what was saved keeps its type: torch makes all of a bfloat16 weight's state bfloat16."""
        super().load_state_dict(state_dict)
        saved_ids = [saved for group in state_dict["param_groups"] for saved in group["params"]]
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        for saved, parameter in zip(saved_ids, parameters, strict=True):
            for key, value in state_dict["state"].get(saved, {}).items():
                if isinstance(value, torch.Tensor):
                    self.state[parameter][key] = value.to(device=parameter.device, copy=True)

    def _state_of(self, parameter: torch.Tensor) -> dict[str, Any]:
        state = self.state[parameter]
        if not state:
            state["step"] = 0
            state["exp_avg"] = torch.zeros_like(parameter, dtype=torch.float32)
            state["exp_avg_sq"] = torch.zeros_like(parameter, dtype=torch.float32)
            if parameter.dtype == torch.bfloat16:
                state["low_bits"] = torch.zeros_like(parameter, dtype=torch.int16)
        state["step"] += 1
        return state

    def _step(
        self, parameter: torch.Tensor, state: dict[str, Any], numbers: torch.Tensor, group: dict[str, Any]
    ) -> None:
        assert parameter.grad is not None
        tensors = [parameter, parameter.grad, state.get("low_bits"), state["exp_avg"], state["exp_avg_sq"]]
        parts = [None if tensor is None else tensor.reshape(-1) for tensor in tensors]
        is_compiled = parameter.is_cuda if self.compiled is None else self.compiled
        update = self._function(is_compiled, parameter.device)
        length = parameter.numel() if is_compiled else _CHUNK
        for start in range(0, parameter.numel(), length):
            chunk = [None if part is None else part[start : start + length] for part in parts]
            update(*chunk, numbers, *group["betas"], group["eps"])

    def _function(self, compiled: bool, device: torch.device) -> Callable[..., None]:
        if compiled not in self._update:
            self._update[compiled] = _compiled_update(device)
        return self._update[compiled]


def _compiled_update(device: torch.device) -> Callable[..., None]:
    """The update as one kernel, after it has given what the plain one gives; else the plain one, and a warning."""
    compiled = torch.compile(_update, dynamic=True)
    generator = torch.Generator(device=device).manual_seed(0)
    outcomes: list[tuple[torch.Tensor, ...]] = []
    try:
        for update in (_update, compiled):
            generator.manual_seed(0)
            weight, gradient = (torch.randn(4096, device=device, generator=generator).bfloat16() for _ in range(2))
            low, first, second = (
                torch.zeros(4096, device=device, dtype=t) for t in (torch.int16, *[torch.float32] * 2)
            )
            numbers = torch.tensor([1e-3, 0.999, 10.0, 4.5], device=device)
            update(weight, gradient, low, first, second, numbers, 0.9, 0.95, 1e-8)
            outcomes.append((join_bits(weight, low), first, second))
        if all(torch.allclose(left, right, rtol=1e-5, atol=1e-7) for left, right in zip(*outcomes, strict=True)):
            return compiled
        reason = "it gave other numbers"
    except Exception as error:  # of any kind: a compiler's failure must not cost the run
        reason = " ".join(str(error).split())[:200]
    logger.warning("the optimizer's update is not compiled (%s): steps take a little longer", reason)
    return _update


def _numbers(group: dict[str, Any], step: int, device: torch.device) -> torch.Tensor:
    """What changes from step to step, as a tensor: a Python number would be compiled into the kernel anew."""
    beta1, beta2 = group["betas"]
    lr = float(group["lr"])
    values = [lr, 1 - lr * group["weight_decay"], 1 / (1 - beta1**step), 1 / (1 - beta2**step) ** 0.5]
    return torch.tensor(values, dtype=torch.float32).to(device)


def _update(
    weight: torch.Tensor,
    gradient: torch.Tensor,
    low_bits: torch.Tensor | None,
    exp_avg: torch.Tensor,
    exp_avg_sq: torch.Tensor,
    numbers: torch.Tensor,
    beta1: float,
    beta2: float,
    eps: float,
) -> None:
    """In place, on flat tensors. numbers: learning rate, decay factor, 1 / bias corrections of both moments."""
    lr, decay, unbias1, unbias2 = numbers.unbind()
    gradient = gradient.float()
    exp_avg.mul_(beta1).add_(gradient * (1 - beta1))
    exp_avg_sq.mul_(beta2).add_(gradient * gradient * (1 - beta2))
    denominator = exp_avg_sq.sqrt() * unbias2 + eps
    master = weight if low_bits is None else join_bits(weight, low_bits)
    master = master * decay - lr * (exp_avg * unbias1) / denominator
    if low_bits is None:
        weight.copy_(master)
    else:
        high, low = split_bits(master)
        weight.copy_(high)
        low_bits.copy_(low)


def split_bits(master: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """float32 -> (the bfloat16 nearest to it, int16 bits between the two): join_bits gives back the same float32."""
    bits = master.view(torch.int32)
    low = bits.to(torch.int16)  # keeps the lower 16 bits, as a signed number
    high = (bits - low.to(torch.int32)) >> 16
    return high.to(torch.int16).view(torch.bfloat16), low


def join_bits(high: torch.Tensor, low: torch.Tensor) -> torch.Tensor:
    """The float32 that split_bits took apart."""
    bits = (high.view(torch.int16).to(torch.int32) << 16) + low.to(torch.int32)
    return bits.view(torch.float32)
