"""`passwright bench soak`: mixed evaluations one after another on one judge: none lost, right outcomes, flat memory.

Honest passes, wrong ones, violations, passes that match nothing, crashes, hangs, hogs and daemons (fault_passes.py) in
a seeded random order. After each: the outcome against the expected ones, what the supervisor, the judge and its zygote
hold, and who else runs. Not a measurement of speed: the protocol is cut down to little timing and short time limits.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eval_harness import gpu_sharing
from eval_harness.errors import HarnessError
from eval_harness.executor import LocalExecutor
from eval_harness.process_tree import children, descendants, is_running
from eval_harness.verdict import Outcome
from scripts.arguments import check_device, say
from scripts.benches.fault_passes import fault_task
from scripts.benches.output import Target, machine_facts, render_table, report
from scripts.benches.soak_cases import Case, draw_cases

HELP = "Evaluate hundreds of honest, wrong and harmful passes in a row: none lost, memory flat, nothing left."

WARM_UP_SHARE = 0.2
"""Of the evaluations, whose memory is not counted: caches fill."""
MAX_SLOPE_KIB = 100.0
"""Growth of a process an evaluation that counts as flat: 30 MB over 300."""
LEAVE_S = 10.0


@dataclass
class Sample:
    """The state after one evaluation."""

    name: str
    outcome: str
    is_expected: bool
    seconds: float
    rss_kib: dict[str, int]
    """Process -> resident memory, page cache of files not counted."""
    num_descriptors: int
    """Of the judge."""
    judge_pid: int
    message: str = ""


@dataclass
class Soak:
    """What a soak found."""

    samples: list[Sample] = field(default_factory=list)
    num_lost: int = 0
    left_over: list[int] = field(default_factory=list)
    """Processes that still ran LEAVE_S after the last evaluation."""

    @property
    def num_unexpected(self) -> int:
        return sum(not sample.is_expected for sample in self.samples)

    @property
    def num_judges(self) -> int:
        return len({sample.judge_pid for sample in self.samples})

    def slope_kib(self, process: str) -> float | None:
        """Growth of a process's memory in KiB an evaluation (Theil and Sen's median of slopes) after the warm-up."""
        values = [sample.rss_kib.get(process, 0) for sample in self.samples][int(WARM_UP_SHARE * len(self.samples)) :]
        step = max(1, len(values) // 60)
        points = list(enumerate(values))[::step]
        slopes = [(b[1] - a[1]) / (b[0] - a[0]) for i, a in enumerate(points) for b in points[i + 1 :]]
        return statistics.median(slopes) if slopes else None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--num", type=int, default=300, metavar="N", help="evaluations (default 300)")
    parser.add_argument("--seed", type=int, default=0, help="order of the cases (default 0)")


def run(args: argparse.Namespace) -> int:
    device = check_device(args.device)
    soak = run_soak(device, args.num, args.seed, say_progress=lambda text: say(f"bench soak: {text}"))
    targets = [
        Target("evaluations lost", soak.num_lost, 0, "at most"),
        Target("unexpected outcomes", soak.num_unexpected, 0, "at most"),
        Target("judges used", soak.num_judges, 1, "at most"),
        Target("processes left over", len(soak.left_over), 0, "at most"),
    ]
    names = ("supervisor", "judge", "zygote", *(("device",) if device.startswith("cuda") else ()))
    for name in names if args.num >= 50 else ():
        text = f"growth of the {name}, KiB an evaluation"
        targets.append(Target(text, soak.slope_kib(name), MAX_SLOPE_KIB, "at most"))
    body, figures = _render(soak, names), _figures(soak, names)
    return report(args, "soak", body=body, figures=figures, targets=targets, facts=machine_facts(device))


def run_soak(device: str, num: int, seed: int, *, say_progress: Callable[[str], None] = lambda text: None) -> Soak:
    """num evaluations in a random order."""
    soak = Soak()
    task = fault_task()
    with LocalExecutor(device) as executor:
        for index, case in enumerate(draw_cases(device, num, random.Random(seed))):
            started = time.monotonic()
            try:
                verdict = executor.submit(case.candidate, task, protocol=case.protocol).result()
                outcome, message = verdict.graphs[0].outcome, verdict.graphs[0].message
            except HarnessError as error:
                soak.num_lost += 1
                outcome, message = None, str(error)
            judge: Any = executor._judges[0]
            pid = judge._process.pid if judge._process else 0
            sample = _sample(case, outcome, message, time.monotonic() - started, pid, device)
            soak.samples.append(sample)
            if not sample.is_expected:
                say_progress(f"{case.name}: {sample.outcome}: {message[:200]}")
            if (index + 1) % 20 == 0:
                say_progress(f"{index + 1} of {num}, {soak.num_unexpected} unexpected, {sample.rss_kib}")
        soak.left_over = _left_over(pid)
    return soak


def _sample(
    case: Case, outcome: Outcome | None, message: str, seconds: float, judge_pid: int, device: str
) -> Sample:
    processes = {"supervisor": "self", "judge": str(judge_pid)}
    for zygote in children(judge_pid):
        processes["zygote"] = str(zygote)
    rss_kib = {name: _rss_kib(pid) for name, pid in processes.items()}
    if device.startswith("cuda"):
        rss_kib["device"] = _device_kib(device)
    return Sample(
        name=case.name,
        outcome=outcome.value if outcome else "LOST",
        is_expected=outcome in case.expected,
        seconds=seconds,
        rss_kib=rss_kib,
        num_descriptors=_num_descriptors(judge_pid),
        judge_pid=judge_pid,
        message=message,
    )


def _rss_kib(pid: str) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith(("RssAnon:", "RssShmem:")))


def _device_kib(device: str) -> int:
    """Memory in use on the GPU, by whoever; the driver is asked, so that no context is made here."""
    gpu = gpu_sharing.whole_gpu(device)
    fields = ("--query-gpu=memory.used", "--format=csv,noheader,nounits")
    answer = gpu_sharing.query(f"--id={gpu}", *fields) if gpu else None
    return 1024 * int(answer) if answer and answer.strip().isdigit() else 0


def _num_descriptors(pid: int) -> int:
    try:
        return len(list(Path(f"/proc/{pid}/fd").iterdir()))
    except OSError:
        return 0


def _left_over(judge_pid: int) -> list[int]:
    """Processes below the judge that are not its zygote, LEAVE_S after the last evaluation."""
    zygotes = set(children(judge_pid))
    deadline = time.monotonic() + LEAVE_S
    while True:
        left = [pid for pid in descendants(judge_pid) if pid not in zygotes and is_running(pid)]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.1)


def _figures(soak: Soak, names: Sequence[str]) -> dict[str, Any]:
    return {
        "num": len(soak.samples),
        "lost": soak.num_lost,
        "unexpected": [
            {"name": sample.name, "outcome": sample.outcome, "message": sample.message}
            for sample in soak.samples
            if not sample.is_expected
        ],
        "judges": soak.num_judges,
        "left_over": len(soak.left_over),
        "seconds": sum(sample.seconds for sample in soak.samples),
        "slope_kib": {name: soak.slope_kib(name) for name in names},
        "rss_kib": {name: [sample.rss_kib.get(name, 0) for sample in soak.samples] for name in names},
        "descriptors": [sample.num_descriptors for sample in soak.samples],
    }


def _render(soak: Soak, names: Sequence[str]) -> str:
    counts = Counter((sample.name, sample.outcome, sample.is_expected) for sample in soak.samples)
    rows = [
        [name, outcome, count, "" if is_expected else "UNEXPECTED"]
        for (name, outcome, is_expected), count in sorted(counts.items())
    ]
    first, last = soak.samples[int(WARM_UP_SHARE * len(soak.samples))], soak.samples[-1]
    memory = [
        [name, first.rss_kib.get(name, 0) / 1024, last.rss_kib.get(name, 0) / 1024, soak.slope_kib(name)]
        for name in names
    ]
    seconds = sum(sample.seconds for sample in soak.samples)
    return "\n\n".join(
        [
            render_table(["pass", "outcome", "count", ""], rows),
            render_table(["process", "MiB after warm-up", "MiB at the end", "KiB an evaluation"], memory),
            f"{len(soak.samples)} evaluations in {seconds:.0f} s; descriptors of the judge: {first.num_descriptors} "
            f"after warm-up, {last.num_descriptors} at the end",
        ]
    )
