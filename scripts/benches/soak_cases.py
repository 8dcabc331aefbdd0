"""What the soak evaluates: honest, wrong and harmful passes with the outcomes that each may end in."""

from __future__ import annotations

import random
from dataclasses import dataclass

from eval_harness.candidate import Candidate
from eval_harness.presets import EvaluationProtocol
from eval_harness.verdict import Outcome
from scripts.benches.fault_passes import Fault, fault_pass, fault_protocol
from scripts.benches.faults import CUDA_FAULTS, FAULTS

HONEST_SHARE, WRONG_SHARE = 0.4, 0.2
HANG_S = 2.5
"""Time limit of passes that hang."""
SLOW_FAULTS = frozenset({"full-scratch", "memory-in-children", "host-memory-bytearray", "fork-bomb"})
"""Some seconds each; drawn less often."""


@dataclass(frozen=True)
class Case:
    """One kind of evaluation."""

    name: str
    candidate: Candidate
    protocol: EvaluationProtocol
    expected: frozenset[Outcome]


def draw_cases(device: str, num: int, generator: random.Random) -> list[Case]:
    """Every kind at least once if num allows it, then by share."""
    honest = [_honest(device, in_full=in_full) for in_full in (True, False)]
    wrong = _wrong(device)
    faults = [_case(fault, device) for fault in (*FAULTS, *(CUDA_FAULTS if device.startswith("cuda") else ()))]
    cases = [honest[0], *wrong, *faults][:num] if num >= 2 * len(faults) else [honest[0]]
    weights = [0.2 if case.name in SLOW_FAULTS else 1.0 for case in faults]
    while len(cases) < num:
        drawn = generator.random()
        if drawn < HONEST_SHARE:
            cases.append(generator.choice(honest))
        elif drawn < HONEST_SHARE + WRONG_SHARE:
            cases.append(generator.choice(wrong))
        else:
            cases += generator.choices(faults, weights)
    generator.shuffle(cases)
    return cases


def _honest(device: str, *, in_full: bool) -> Case:
    name = "honest-in-full" if in_full else "honest"
    return Case(name, fault_pass(device=device), fault_protocol(in_full=in_full), frozenset({Outcome.CORRECT}))


def _wrong(device: str) -> list[Case]:
    made = {
        "wrong-values": ("scale = x", {Outcome.WRONG_VALUES}),
        "wrong-shape": ("return torch.empty(3, device=x.device)", {Outcome.WRONG_SHAPE}),
        "wrong-dtype": ("return torch.empty_like(x, dtype=torch.float64)", {Outcome.WRONG_DTYPE}),
        "raises": ("raise ValueError('no such layout')", {Outcome.RUNTIME_ERROR}),
        "torch-operators": ("return torch.relu(x + bias) * scale", {Outcome.VIOLATION}),
        "bad-kernel": ("kernel[(1,)](x, nothing_of_that_name)", {Outcome.RUNTIME_ERROR, Outcome.COMPILE_ERROR}),
    }
    cases = [
        Case(name, fault_pass(body, device=device), fault_protocol(), frozenset(expected))
        for name, (body, expected) in made.items()
    ]
    forbidden = fault_pass("import os", device=device)
    honest = fault_pass(device=device)
    nothing = {path: text.replace("torch.relu(tmp_0)", "torch.tanh(tmp_0)") for path, text in honest.files.items()}
    cases.append(Case("no-match", Candidate(nothing), fault_protocol(), frozenset({Outcome.NO_MATCH})))
    cases.append(Case("forbidden-import", forbidden, fault_protocol(in_full=True), frozenset({Outcome.VIOLATION})))
    return cases


def _case(fault: Fault, device: str) -> Case:
    protocol = fault_protocol(
        graph_timeout_s=fault.graph_timeout_s if fault.graph_timeout_s > 10 else HANG_S,
        max_memory_share=fault.max_memory_share,
    )
    return Case(fault.name, fault.candidate(device), protocol, fault.outcomes)
