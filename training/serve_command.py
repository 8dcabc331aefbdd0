"""The command line and environment of `vllm serve`, in one place (written for vLLM 0.22 to 0.31)."""

from __future__ import annotations

import importlib.util
import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from eval_harness.errors import UserError
from training.serve_config import VllmServeConfig, visible_gpus
from training.student_source import ServedTemplate, StudentSource

HOST = "127.0.0.1"
"""Nobody else: the server has no key, and with pauses on also routes that only its owner may use."""
SHARED_MEMORY, OWN_MEMORY = 0.6, 0.9
"""Share of a GPU's memory for the server: the evaluator needs room for candidate, reference and their inputs."""


@dataclass(frozen=True)
class ServeCommand:
    """What is started."""

    arguments: list[str]
    env: dict[str, str]
    """Variables that are set on top of this process's own; no keys, so they may be logged and recorded."""
    model: str
    """Name under which the student is asked for."""


def vllm_command(
    config: VllmServeConfig,
    source: StudentSource,
    template: ServedTemplate,
    *,
    port: int,
    seed: int,
    name: str,
    template_path: Path | None = None,
    shares_gpu: bool = False,
    gpus: list[int] | None = None,
) -> ServeCommand:
    """The one place that knows vLLM's flags. template_path: a file with template.text. gpus: indices to be seen.

    Raises UserError if vLLM is not installed, or the student is an adapter and adapters are refused.
    """
    memory = config.gpu_memory_utilization or (SHARED_MEMORY if shares_gpu else OWN_MEMORY)
    # an adapter is asked for by its own name; the base keeps another, so that nobody gets it by mistake
    base_name = name if source.adapter is None else f"{name}-base"
    arguments = [
        *(config.program or find_program()), "serve", source.model,
        "--host", HOST, "--port", str(port),
        "--served-model-name", base_name,
        "--seed", str(seed),
        "--dtype", config.dtype,
        "--tensor-parallel-size", str(config.tensor_parallel),
        "--data-parallel-size", str(config.data_parallel),
        "--gpu-memory-utilization", str(memory),
        # neutral sampling where a request says nothing: a checkpoint's own top_k or repetition penalty is no protocol
        "--generation-config", "vllm",
        "--enable-auto-tool-choice", "--tool-call-parser", config.tool_call_parser or template.tool_call_parser,
    ]  # fmt: skip
    if source.tokenizer != source.model:
        arguments += ["--tokenizer", source.tokenizer]
    if reasoning := config.reasoning_parser or template.reasoning_parser:
        arguments += ["--reasoning-parser", reasoning]
    if template_path is not None:
        arguments += ["--chat-template", str(template_path)]
    if config.max_model_len is not None:
        arguments += ["--max-model-len", str(config.max_model_len)]
    if config.max_num_seqs is not None:
        arguments += ["--max-num-seqs", str(config.max_num_seqs)]
    if config.enforce_eager:
        arguments.append("--enforce-eager")
    if source.adapter is not None:
        if config.adapters == "refuse":
            raise UserError(f"{source.name}: is an adapter; serve the merged student, or set server.adapters=serve")
        rank = config.max_lora_rank or source.lora_rank or 16
        arguments += ["--enable-lora", "--max-lora-rank", str(rank), "--lora-modules", f"{name}={source.adapter}"]
    return ServeCommand([*arguments, *config.extra_args], _environment(config, shares_gpu, gpus), name)


def _environment(config: VllmServeConfig, shares_gpu: bool, gpus: list[int] | None) -> dict[str, str]:
    env = {
        # its sampler is compiled at every start, which takes 100 s
        "VLLM_USE_FLASHINFER_SAMPLER": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_BATCH_INVARIANT": "1" if config.batch_invariant else "0",
    }
    if shares_gpu:
        env["VLLM_SERVER_DEV_MODE"] = "1"  # the routes /pause and /resume
    if gpus is not None:
        known = visible_gpus()
        env["CUDA_VISIBLE_DEVICES"] = ",".join(known[gpu] if gpu < len(known) else str(gpu) for gpu in gpus)
    return env | config.env


def find_program() -> list[str]:
    """`vllm`, beside this Python or on the PATH; else this Python's module (pip install --target makes no program
    there). Raises UserError."""
    beside = Path(sys.executable).parent / "vllm"
    found = str(beside) if beside.is_file() else shutil.which("vllm")
    if found is None and importlib.util.find_spec("vllm") is not None:
        return [sys.executable, "-m", "vllm.entrypoints.cli.main"]
    if found is None:
        raise UserError(
            "vllm is not installed: pip install 'passwright[serve]', or choose --serve transformers or an --endpoint"
        )
    return [found]


def shown(command: ServeCommand) -> str:
    """The command as a shell would take it, for logs."""
    variables = (f"{key}={shlex.quote(value)}" for key, value in command.env.items())
    return " ".join([*variables, *map(shlex.quote, command.arguments)])


def child_environment(own: Mapping[str, str], command: ServeCommand) -> dict[str, str]:
    """This process's variables without keys of other services, and the command's on top."""
    dropped = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "VLLM_API_KEY")
    return {key: value for key, value in own.items() if key not in dropped} | command.env
