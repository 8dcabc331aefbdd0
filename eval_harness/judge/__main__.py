"""The judge process: takes evaluations from its supervisor one at a time and answers with verdicts.

    supervisor -> judge   {candidate | baseline, task, protocol, seed}
    judge -> supervisor   {progress: text} ...  then {verdict} or {error, kind}
"""

from __future__ import annotations

import json
import logging
import os
import select
import sys
import threading
import time
import traceback
from typing import Any

import torch

from data.graph import Graph, MalformedGraphError
from data.task import Task
from eval_harness.candidate import Candidate
from eval_harness.errors import HarnessError
from eval_harness.evaluate import evaluate
from eval_harness.judge.session import Bench
from eval_harness.own_memory import guard_memory
from eval_harness.presets import EvaluationProtocol
from eval_harness.protocol import Channel, ChannelClosedError

LEAVE_GRACE_S = 2.0
"""An idle judge closes its zygote itself within this time."""


def main(descriptor: int, device: str) -> None:
    """Serve until the supervisor closes the channel. Leaves standard output and error to logs."""
    logging.basicConfig(level=logging.WARNING, format="judge: %(message)s", stream=sys.stderr)
    supervisor = Channel.from_descriptor(descriptor)
    threading.Thread(target=_leave_with, args=(descriptor,), daemon=True).start()
    guard_memory()  # seeds and expected values are in it
    torch.set_num_threads(1)  # the workers own the cores while they are timed
    try:
        bench = Bench.open(device)
    except HarnessError as error:
        supervisor.send({"ready": False, "error": str(error)})
        return
    supervisor.send({"ready": True, "zygote_pid": bench.zygote.pid})
    try:
        while True:
            request, _ = supervisor.receive()
            supervisor.send(_answer(request, bench, supervisor))
    except (ChannelClosedError, KeyboardInterrupt):
        pass
    finally:
        bench.close()


def _leave_with(descriptor: int) -> None:
    """End at once when the supervisor is gone, even in the middle of an evaluation; the zygote ends the workers."""
    poll = select.poll()
    poll.register(descriptor, select.POLLRDHUP | select.POLLHUP)
    poll.poll()
    time.sleep(LEAVE_GRACE_S)
    os._exit(0)


def _answer(request: dict[str, Any], bench: Bench, supervisor: Channel) -> dict[str, Any]:
    try:
        task = Task(
            task_id=request["task"]["task_id"],
            graphs=tuple(Graph(graph["name"], graph["files"]) for graph in request["task"]["graphs"]),
        )
        subject = Candidate(request["candidate"]) if request.get("candidate") else str(request["baseline"])
        verdict = evaluate(
            subject,
            task,
            EvaluationProtocol.model_validate(request["protocol"]),
            bench=bench,
            seed=request["seed"],
            progress=lambda text: supervisor.send({"progress": text}),
        )
        return {"verdict": json.loads(verdict.model_dump_json())}
    except (HarnessError, MalformedGraphError) as error:
        return {"error": str(error), "kind": type(error).__name__}
    except (ChannelClosedError, KeyboardInterrupt):
        raise
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        traceback.print_exc()
        return {"error": f"{type(error).__name__} at {where.name}: {error}", "kind": "HarnessError"}


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
