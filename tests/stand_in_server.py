"""A VllmServer of ours with stand_in_vllm.py behind it, for tests. Light: a process that is to be killed imports it."""

from __future__ import annotations

import sys
from pathlib import Path

from training.serve import VllmServer
from training.serve_command import ServeCommand, vllm_command
from training.serve_config import VllmServeConfig
from training.student_source import ServedTemplate, StudentSource

REPOSITORY = Path(__file__).parent.parent
STAND_IN = [sys.executable, str(REPOSITORY / "tests/stand_in_vllm.py")]
TEMPLATE = ServedTemplate("{{ messages }}", "qwen3", "hermes", None)
BASE = StudentSource("m", "m", tokenizer="m")


def command_on(port: int, env: dict[str, str], *, shares_gpu: bool = False, **settings) -> ServeCommand:
    config = VllmServeConfig(kind="vllm", program=STAND_IN, env={"PYTHONPATH": str(REPOSITORY)} | env, **settings)
    return vllm_command(config, BASE, TEMPLATE, port=port, seed=7, name="student", shares_gpu=shares_gpu)


def make_server(
    tmp_path: Path, *, port: int | None = None, timeout_s: float = 30.0, lines=None, **env: str
) -> VllmServer:
    env = {"STAND_IN_PIDS": str(tmp_path / "pids")} | env
    return VllmServer(
        lambda chosen: command_on(chosen, env, shares_gpu=True),
        log_path=tmp_path / "logs/vllm.log",
        port=port,
        start_timeout_s=timeout_s,
        say=(lines if lines is not None else []).append,
    )


def pids(tmp_path: Path) -> list[int]:
    return [int(pid) for pid in (tmp_path / "pids").read_text().split()]
