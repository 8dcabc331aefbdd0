"""Many models, a process each: run_models() starts workers, stops those that hang, and resumes where a run ended.

A model is done when its result.json is there with the same configuration; whatever else a stopped run left of it is
removed when it is started again. How a worker's process comes and goes is worker_process.py's business. No torch here.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import signal
import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import connection
from pathlib import Path
from typing import Any

from tqdm import tqdm

from data.construct.model_result import (
    DEFAULT_ZOO,
    LOG_FILE,
    PHASE_FILE,
    ModelConfig,
    ModelResult,
    Status,
    clear_model_dir,
    model_dir_of,
    read_result,
    write_result,
)
from data.construct.worker_process import start_server, start_worker

logger = logging.getLogger(__name__)

LOCK_FILE = ".lock"
POLL_S = 0.2
STACK_DUMP_S = 0.5
"""What a worker that is out of time gets to write its stack into its log, before it is killed."""


class RunInProgressError(RuntimeError):
    """Another run writes into the same folder."""


def run_models(
    model_ids: Sequence[str],
    out: str | Path,
    *,
    num_workers: int = 2,
    time_limit_s: float = 600.0,
    shapes: int = 10,
    dtypes: Sequence[str] = ("float16", "bfloat16"),
    seed: int = 0,
    fusible: bool = True,
    backend: str = "cpu",
    threads: int = 1,
    zoo: str = DEFAULT_ZOO,
    retry_failed: bool = False,
    progress: bool = True,
) -> list[dict[str, Any]]:
    """Do every model that is not done yet; the results of all, in the order of model_ids, as result.json has them.

    A model that fails, crashes or takes longer than time_limit_s is a result like another. It is not tried again by a
    later run unless retry_failed says so, or the limit that it met is raised. Raises ValueError for arguments that make
    no sense and RunInProgressError if another run has the folder.
    """
    asked = {"shapes": shapes, "dtypes": tuple(dtypes), "seed": seed, "fusible": fusible, "backend": backend}
    config = ModelConfig.model_validate({**asked, "threads": threads, "zoo": zoo})
    if num_workers < 1 or time_limit_s <= 0:
        raise ValueError(f"num_workers is {num_workers} and time_limit_s {time_limit_s}; both must be above 0")
    folders = {model_id: model_dir_of(out, model_id) for model_id in model_ids}
    Path(out).mkdir(parents=True, exist_ok=True)
    with _only_run_in(Path(out)):
        results = {model_id: read_result(model_dir) for model_id, model_dir in folders.items()}
        kept = {
            model_id: result
            for model_id, result in results.items()
            if result is not None and not _is_to_do(result, config, time_limit_s, retry_failed)
        }
        pending = [model_id for model_id in folders if model_id not in kept]
        for model_id in pending:
            clear_model_dir(folders[model_id])
        pool = _Pool(Path(out), config, num_workers, time_limit_s)
        bar = tqdm(total=len(folders), initial=len(kept), desc="models", unit="model", disable=not progress)
        with bar, contextlib.closing(pool.run(pending)) as ended:
            for result in ended:
                kept[result.model_id] = result
                counts = {str(status): sum(r.status is status for r in kept.values()) for status in Status}
                bar.set_postfix(counts, refresh=False)
                bar.update()
    return [kept[model_id].model_dump(mode="json") for model_id in model_ids]


def _is_to_do(result: ModelResult, config: ModelConfig, time_limit_s: float, retry_failed: bool) -> bool:
    if result.config_hash != config.config_hash or (retry_failed and result.status is not Status.DONE):
        return True
    return result.status is Status.TIMEOUT and (result.time_limit_s or 0.0) < time_limit_s


@dataclass
class _Running:
    """A worker that was started."""

    model_id: str
    process: Any
    started: float = field(default_factory=time.monotonic)
    peak_rss_mb: float | None = None

    def note_memory(self) -> None:
        """The peak so far, for a process that cannot tell it itself any more."""
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    self.peak_rss_mb = round(int(line.split()[1]) / 1024, 1)

    def kill(self) -> None:
        """The whole group; the worker alone if it has not made its group yet."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.join()


class _Pool:
    """At most num_workers models at a time."""

    def __init__(self, out: Path, config: ModelConfig, num_workers: int, time_limit_s: float) -> None:
        self.out = out
        self.config = config
        self.num_workers = num_workers
        self.time_limit_s = time_limit_s

    def run(self, model_ids: Sequence[str]) -> Generator[ModelResult]:
        """Results as they come. Workers that still run are killed when this ends early, whatever the reason."""
        pending, running = deque(model_ids), list[_Running]()
        if pending:
            start_server()
        try:
            while pending or running:
                while pending and len(running) < self.num_workers:
                    running.append(self.start(pending.popleft()))
                connection.wait([worker.process.sentinel for worker in running], timeout=POLL_S)
                for worker in list(running):
                    worker.note_memory()
                    ended = worker.process.exitcode is not None
                    if ended or time.monotonic() - worker.started > self.time_limit_s:
                        running.remove(worker)
                        yield self.ended(worker) if ended else self.stopped(worker)
        finally:
            for worker in running:
                worker.kill()

    def start(self, model_id: str) -> _Running:
        return _Running(model_id, start_worker(model_id, self.out, self.config, self.time_limit_s))

    def ended(self, worker: _Running) -> ModelResult:
        """What the worker wrote, or that it ended without writing anything."""
        worker.kill()  # what it left of its group
        result = read_result(model_dir_of(self.out, worker.model_id))
        if result is not None and result.config_hash == self.config.config_hash:
            return result
        code = worker.process.exitcode
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
        return self.write(worker, Status.FAILED, f"{how} {self.phase_of(worker)}")

    def stopped(self, worker: _Running) -> ModelResult:
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker.process.pid, signal.SIGUSR1)  # faulthandler writes where it hangs
        worker.process.join(STACK_DUMP_S)
        worker.kill()
        return self.write(worker, Status.TIMEOUT, f"no end within {self.time_limit_s:g} s, {self.phase_of(worker)}")

    def phase_of(self, worker: _Running) -> str:
        model_dir = model_dir_of(self.out, worker.model_id)
        try:
            phase = (model_dir / PHASE_FILE).read_text("utf-8")
        except OSError:
            phase = "start"
        return f"while it did: {phase}; see {model_dir / LOG_FILE}"

    def write(self, worker: _Running, status: Status, error: str) -> ModelResult:
        """The result of a model whose worker could not write it; nothing else of the model is kept."""
        model_dir = model_dir_of(self.out, worker.model_id)
        result = ModelResult(
            model_id=worker.model_id,
            status=status,
            error=error,
            seconds=round(time.monotonic() - worker.started, 3),
            peak_rss_mb=worker.peak_rss_mb,
            time_limit_s=self.time_limit_s if status is Status.TIMEOUT else None,
            config=self.config,
            config_hash=self.config.config_hash,
        )
        clear_model_dir(model_dir)
        write_result(result, model_dir)
        logger.warning("%s: %s, %s", worker.model_id, status, error)
        return result


@contextlib.contextmanager
def _only_run_in(out: Path) -> Iterator[None]:
    """Hold the folder's lock, which the kernel releases however this process ends."""
    with (out / LOCK_FILE).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunInProgressError(f"{out}: another run writes here; wait for it or give another folder") from None
        yield
