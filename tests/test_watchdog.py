"""Host memory of real processes, measured; the watchdog's decisions, on made-up readings of the machine."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from eval_harness.judge import memory, watchdog
from eval_harness.judge.output import KEPT_HEAD_BYTES, KEPT_TAIL_BYTES, OutputReader

MIB = 1 << 20
GIB = 1 << 30


def held_by(code: str) -> int:
    """Bytes held by a process that runs code and says so."""
    process = subprocess.Popen(
        [sys.executable, "-c", f"import os, sys, mmap\n{code}\nprint('ready', flush=True)\nsys.stdin.read()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout and process.stdin
    try:
        assert process.stdout.readline() == "ready\n"
        return memory.held_bytes([process.pid])
    finally:
        process.stdin.close()
        process.wait()


@pytest.mark.parametrize(
    "code",
    [
        "held = b'x' * (200 << 20)",
        "file = os.memfd_create('x'); [os.write(file, b'x' * (50 << 20)) for _ in range(4)]",
        "m = mmap.mmap(-1, 200 << 20); [m.write(b'x' * (50 << 20)) for _ in range(4)]",
        "file = os.memfd_create('x'); os.ftruncate(file, 200 << 20)\n"
        "m = mmap.mmap(file, 200 << 20); [m.write(b'x' * (50 << 20)) for _ in range(4)]",
    ],
    ids=["private", "memory file", "shared", "mapped memory file, counted once"],
)
def test_memory_is_found_wherever_it_is_held(code: str) -> None:
    nothing = held_by("")
    assert nothing < 50 * MIB
    assert 195 * MIB < held_by(code) - nothing < 215 * MIB


def test_the_machine_has_memory_left() -> None:
    assert 0 < memory.available_bytes() <= memory.total_bytes()
    assert memory.num_tasks() > 0


class Machine:
    """Readings that a test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.available, self.held, self.tasks, self.processes = 20 * GIB, 0, 100, 1
        monkeypatch.setattr(memory, "total_bytes", lambda: 24 * GIB)
        monkeypatch.setattr(memory, "available_bytes", lambda: self.available)
        monkeypatch.setattr(memory, "held_bytes", lambda pids: self.held)
        monkeypatch.setattr(memory, "num_tasks", lambda: self.tasks)
        monkeypatch.setattr(watchdog, "descendants", lambda root: list(range(self.processes)))
        monkeypatch.setattr(watchdog, "LONGEST_WAIT_S", 0.01)
        monkeypatch.setattr(watchdog, "SHORTEST_WAIT_S", 0.01)
        self.excess: list[tuple[str, str]] = []
        self.said = threading.Event()

    def watch(self) -> watchdog.MemoryWatchdog:
        def on_excess(kind: str, message: str) -> None:
            self.excess.append((kind, message))
            self.said.set()

        return watchdog.MemoryWatchdog(os.getpid(), 0.5, on_excess)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


@pytest.mark.parametrize(
    ("available", "held", "tasks", "processes", "kind"),
    [
        (8 * GIB, 11 * GIB, 100, 1, "oom"),  # over its own limit of 10 GiB
        (1 * GIB, 9.9 * GIB, 100, 1, "oom"),  # the machine is short, and it holds the most of what went
        (1 * GIB, 2 * GIB, 100, 1, "killed"),  # the machine is short because of others
        (19 * GIB, 0, 400, 300, "runtime"),  # a fork bomb
    ],
)
def test_too_much_ends_the_worker(
    machine: Machine, available: float, held: float, tasks: int, processes: int, kind: str
) -> None:
    watching = machine.watch()
    machine.available, machine.held, machine.tasks, machine.processes = int(available), int(held), tasks, processes
    assert machine.said.wait(5.0)
    watching.stop()
    assert [found for found, _ in machine.excess] == [kind]


@pytest.mark.parametrize(
    ("available", "held", "tasks", "processes"),
    [
        (12 * GIB, 8 * GIB, 100, 1),  # much, and within the limit
        (3 * GIB, 1 * GIB, 100, 1),  # others take memory, and enough is left
        (19 * GIB, 0, 2000, 5),  # others start processes
    ],
)
def test_what_others_do_does_not(machine: Machine, available: int, held: int, tasks: int, processes: int) -> None:
    watching = machine.watch()
    machine.available, machine.held, machine.tasks, machine.processes = available, held, tasks, processes
    assert not machine.said.wait(0.3)
    watching.stop()


def test_a_machine_that_was_short_before_condemns_nobody(machine: Machine) -> None:
    machine.available = GIB
    watching = machine.watch()
    machine.available = GIB * 8 // 10
    assert not machine.said.wait(0.3)
    machine.available = GIB // 4
    assert machine.said.wait(5.0)
    watching.stop()


def test_output_is_drained_and_its_head_and_tail_kept() -> None:
    reading, writing = os.pipe()
    reader = OutputReader(reading)
    os.write(writing, b"first words\n")
    for _ in range(64):
        os.write(writing, b"noise\n" * (MIB // 6))
    os.write(writing, b"last words\n")
    reader.close()  # the other end is still open: somebody may hold it for ever
    text = reader.text()
    assert text.startswith("first words\n") and text.endswith("last words\n")
    assert "bytes left out" in text
    assert len(text) < KEPT_HEAD_BYTES + KEPT_TAIL_BYTES + 100
    os.close(writing)
