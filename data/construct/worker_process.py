"""How the process of one model starts and dies: forked from a server that has imported the libraries once.

Each has a process group of its own, which is killed as a whole, and a log. It does not outlive its run, even one that
is killed. The process that starts workers imports no torch.
"""

from __future__ import annotations

import faulthandler
import logging
import multiprocessing
import os
import signal
import sys
import threading
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess
from pathlib import Path

from data.construct.model_result import LOG_FILE, ModelConfig, Status, model_dir_of

logger = logging.getLogger(__name__)

PRELOADED = (
    "torch._dynamo",
    "functorch.compile",
    "transformers.modeling_utils",
    "transformers.models.auto.modeling_auto",
    "data.construct.model_zoo",
    "data.construct.model_capture",
    "data.construct.fusible",
)
"""Imported once, before workers are forked, and skipped where they are not installed: 12 s of processor time, as long
as a small model takes. None of them starts a thread, so forking is safe."""
WORKER_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",  # read once, at import; a worker sets its own number later
    "TORCHINDUCTOR_COMPILE_THREADS": "1",  # no pool of compile processes, which would have groups of their own
    "HF_HUB_OFFLINE": "1",  # models are built from configurations
    "TOKENIZERS_PARALLELISM": "false",
}
ORPHAN_GRACE_S = 60.0
"""A worker whose run is gone, and which holds the interpreter's lock for ever, ends this long after its limit."""


def start_server() -> None:
    """The process that workers are forked from; one that runs already is used as it is."""
    multiprocessing.get_context("forkserver").set_forkserver_preload(list(PRELOADED))
    before = {name: os.environ.get(name) for name in WORKER_ENVIRONMENT}
    os.environ.update(WORKER_ENVIRONMENT)
    try:
        forkserver.ensure_running()
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def start_worker(model_id: str, out: Path, config: ModelConfig, time_limit_s: float) -> BaseProcess:
    """A process that does one model and writes its result; `exitcode` is 1 if the model failed."""
    context = multiprocessing.get_context("forkserver")
    process = context.Process(target=_work, args=(model_id, str(out), config, time_limit_s), name=model_id)
    process.start()
    return process


def _work(model_id: str, out: str, config: ModelConfig, time_limit_s: float) -> None:
    """A worker's process: a group of its own that ends with the run, and a log."""
    os.setsid()
    _end_with_the_run(time_limit_s)
    model_dir = model_dir_of(out, model_id)
    model_dir.mkdir(parents=True, exist_ok=True)
    with (model_dir / LOG_FILE).open("wb") as log:
        os.dup2(log.fileno(), sys.stdout.fileno())
        os.dup2(log.fileno(), sys.stderr.fileno())
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s", force=True)
    logger.info("%s: process %d", model_id, os.getpid())
    from data.construct.model_worker import run_model

    result = run_model(model_id, out, config)
    sys.exit(0 if result.status is Status.DONE else 1)


def _end_with_the_run(time_limit_s: float) -> None:
    """Die when the run dies, and some time after the limit even if no thread of Python can run any more."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, time_limit_s + ORPHAN_GRACE_S)
    run = multiprocessing.parent_process()

    def follow() -> None:
        if run is not None:
            run.join()
            os.killpg(os.getpid(), signal.SIGKILL)

    threading.Thread(target=follow, daemon=True).start()
