"""Builds and runs models of the zoo at all their sizes, each in a process of its own with a time limit.

A model that fails, hangs or kills its process is a line of the answer and never stops the others.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from data.construct.zoo_entry import ModelEntry

if TYPE_CHECKING:  # the command's help needs no torch
    import torch

PRELOADED = ["data.construct.zoo_inputs", "data.construct.zoo", "transformers.models.llama.modeling_llama"]
"""Imported once for all processes: what almost every model needs, some seconds' worth."""
SENSES = {
    "sequence": "text", "image": "vision", "clip": "vision", "frames": "audio", "samples": "audio", "context": "other"
}  # fmt: skip
"""What a symbol says about the domain. Target tokens say nothing: speech recognition is audio."""
MAX_PARAMETERS = 20_000_000
MAX_FORWARD_S = 1.0
"""Of the base size, on one core. Larger sizes may take as much longer as they cost more."""


@dataclass(frozen=True)
class CheckResult:
    """How building and running one model at all its sizes ended."""

    entry: ModelEntry
    """With its symbols, and the domain that its inputs show."""
    reason: str
    """Why it did not pass; empty if it did."""
    seconds: float
    """Of the whole process: every size built and run."""
    build_s: float
    """Processor time of building the model and its inputs at the base size."""
    forward_s: float
    """Processor time of one call at the base size, on one thread."""
    num_parameters: int
    num_sizes: int

    @property
    def passed(self) -> bool:
        return not self.reason


def check_models(
    entries: Sequence[ModelEntry], dtype: str, num_sizes: int, time_limit_s: float
) -> Iterator[CheckResult]:
    """A result for each entry, in order, one process at a time."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    for entry in entries:
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_check_in_process, args=(entry, dtype, num_sizes, sender), daemon=True)
        started = time.monotonic()
        process.start()
        sender.close()
        try:
            result = receiver.recv() if receiver.poll(time_limit_s) else _lost(entry, f"over {time_limit_s:g} s")
        except EOFError:
            process.join()
            result = _lost(entry, f"its process died with exit code {process.exitcode}")
        process.kill()
        process.join()
        receiver.close()
        yield replace(result, seconds=time.monotonic() - started)


def _lost(entry: ModelEntry, reason: str) -> CheckResult:
    return CheckResult(entry, reason, 0.0, 0.0, 0.0, 0, 0)


def _check_in_process(entry: ModelEntry, dtype: str, num_sizes: int, sender: Connection) -> None:
    try:
        sender.send(check_model(entry, dtype, num_sizes))
    except Exception as error:  # a model may fail in any way, and the reason is the answer
        text = " ".join([*str(error).split(), *getattr(error, "__notes__", [])])
        sender.send(_lost(entry, f"{type(error).__name__}: {text[:300]}"))


def check_model(entry: ModelEntry, dtype: str = "float32", num_sizes: int = 10) -> CheckResult:
    """Build and run one model at all its sizes here. ValueError if it is too large, too slow or answers the same."""
    import torch

    from data.construct.model_zoo import build_example, size_variants

    torch.set_num_threads(1)
    build_s = forward_s = 0.0
    num_parameters = 0
    variants = size_variants(entry, num_sizes)
    for index, sizes in enumerate(variants):
        started = time.process_time()  # of this process, not of a busy machine
        try:
            example = build_example(entry, sizes, getattr(torch, dtype))
            built = time.process_time()
            with torch.no_grad():
                answer = first_tensor(example.module(*example.args, **example.kwargs))
        except Exception as error:
            error.add_note(f"(at {sizes})")
            raise
        finished = time.process_time()
        if not bool(torch.isfinite(answer.float()).all()):
            raise ValueError(f"its answer is not finite (at {sizes})")
        if index == 0:
            build_s, forward_s = built - started, finished - built
            num_parameters = sum(parameter.numel() for parameter in example.module.parameters())
    if num_parameters > MAX_PARAMETERS:
        raise ValueError(f"{num_parameters / 1e6:.1f}M parameters, over {MAX_PARAMETERS / 1e6:g}M")
    if forward_s > MAX_FORWARD_S:
        raise ValueError(f"one call takes {forward_s:.2f} s, over {MAX_FORWARD_S:g} s")
    symbols = tuple(variants[0])
    settled = replace(entry, symbols=symbols, domain=domain_of(symbols, entry.domain))
    return CheckResult(settled, "", 0.0, build_s, forward_s, num_parameters, len(variants))


def domain_of(symbols: Sequence[str], declared: str) -> str:
    """The domain that the inputs show; the one that the class declares if they show none.

    Classes inherit what they declare: a text model of a vision library calls itself vision.
    """
    senses = {SENSES[symbol] for symbol in symbols if symbol in SENSES}
    if len(senses) > 1:
        return "multimodal"
    return senses.pop() if senses else declared


def first_tensor(answer: object) -> torch.Tensor:
    """The first tensor of what a model returned. ValueError if there is none."""
    import torch

    if isinstance(answer, torch.Tensor):
        return answer
    items = list(answer.values()) if isinstance(answer, dict) else answer  # the outputs of transformers are dicts
    for item in items if isinstance(items, (list, tuple)) else ():
        if item is not None:
            return first_tensor(item)
    raise ValueError(f"its answer, a {type(answer).__name__}, holds no tensor")


def line_of(result: CheckResult) -> str:
    """One line about one model."""
    name = f"{result.entry.model_id:52} {result.entry.domain:10}"
    if not result.passed:
        return f"{name} FAILED {result.seconds:6.1f} s  {result.reason}"
    return (
        f"{name} ok     {result.seconds:6.1f} s  {result.num_parameters / 1e6:6.2f}M parameters, built in "
        f"{result.build_s:.2f} s, one call {result.forward_s * 1e3:.0f} ms, {result.num_sizes} sizes of "
        f"{' '.join(result.entry.symbols)}"
    )


def known_source(results: Sequence[CheckResult]) -> str:
    """The text of zoo_known.py: the models of transformers that passed, with the versions they passed with."""
    import torch
    import transformers

    groups: dict[tuple[str, str], list[str]] = {}
    for entry in (result.entry for result in results if result.entry.source == "transformers"):
        head = entry.model_id.partition(".")[2].partition(".")[2]
        name = f"{entry.architecture}/{head}" if head else entry.architecture
        row = f"{name} {entry.origin.removeprefix(ORIGIN)}"
        groups.setdefault((entry.domain, " ".join(entry.symbols)), []).append(row)
    lines = [KNOWN_HEADER.rstrip("\n"), ""]
    lines += [f'TRANSFORMERS_VERSION = "{transformers.__version__}"', f'TORCH_VERSION = "{torch.__version__}"', ""]
    lines += ["_PASSED: dict[tuple[str, str], list[str]] = {"]
    for (domain, symbols), rows in sorted(groups.items()):
        lines += [f'    ("{domain}", "{symbols}"): [', *(f'        "{row}",' for row in rows), "    ],"]
    return "\n".join([*lines, "}", KNOWN_FOOTER])


ORIGIN = "transformers.models."
KNOWN_HEADER = '''"""Models of `transformers` that were built and run at all their sizes. Made by a command:

python -m data.construct.model_zoo check --all --write-known data/construct/zoo_known.py
"""

from data.construct.zoo_entry import ModelEntry, transformers_entry
'''
KNOWN_FOOTER = '''"""By domain and sizes of the inputs: architecture, a head if it has one, and the class."""

KNOWN_GOOD: tuple[ModelEntry, ...] = tuple(
    transformers_entry(row.split()[0], row.split()[1], domain, tuple(symbols.split()))
    for (domain, symbols), rows in _PASSED.items()
    for row in rows
)
'''
