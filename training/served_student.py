"""open_student: whatever serves a student -> a factory of policies, for as long as an evaluation asks.

ServeConfig -> which server, on which GPUs, shared with the evaluator or not -> StudentService
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eval_harness.errors import UserError
from eval_harness.executor import expand_devices
from training.serve import LOG_FILE, Endpoint, VllmServer, describe_server
from training.serve_command import vllm_command
from training.serve_config import (
    AutoServeConfig,
    EndpointServeConfig,
    ServingCost,
    TransformersServeConfig,
    VllmServeConfig,
)
from training.served_policy import ServedStudentPolicy
from training.student_service import (
    LockedStudent,
    StudentService,
    choose_gpus,
    device_indices,
    num_visible_gpus,
    taking_turns,
)
from training.student_source import StudentSource, find_template
from trajectories.policies.vllm_config import VLLMPolicyConfig
from trajectories.policy import Policy

if TYPE_CHECKING:
    from training.student_policy import SamplingConfig

logger = logging.getLogger(__name__)

TEMPLATE_FILE = "chat_template.jinja"
OWN_SERVER_RETRIES = 3
"""Of an answer, at a server that we started: one that has died stays dead, and the run is to say so soon."""
AnyServeConfig = AutoServeConfig | VllmServeConfig | EndpointServeConfig | TransformersServeConfig


def choose_kind(
    config: AnyServeConfig, device: str
) -> TransformersServeConfig | EndpointServeConfig | VllmServeConfig:
    """The configuration with `auto` decided."""
    if not isinstance(config, AutoServeConfig):
        return config
    has_vllm = importlib.util.find_spec("vllm") is not None
    if device.startswith("cuda") and has_vllm:
        return VllmServeConfig(kind="vllm")
    if device.startswith("cuda"):
        logger.warning("vllm is not installed: the student answers through transformers, one answer at a time")
    return TransformersServeConfig(kind="transformers")


@contextlib.contextmanager
def open_student(
    config: AnyServeConfig,
    source: StudentSource,
    sampling: SamplingConfig,
    *,
    name: str,
    out_dir: Path,
    device: str,
    is_local_evaluator: bool = True,
    student_device: str = "cpu",
    student_dtype: str | None = None,
    seed: int = 0,
    cost: ServingCost | None = None,
    num_under_way: Callable[[], int] = lambda: 0,
    say: Callable[[str], None] = logger.info,
) -> Iterator[StudentService]:
    """Serve a student. name: under which a server has it. device: the evaluator's.

    is_local_evaluator: its judges use this machine's GPUs. num_under_way: evaluations (see GpuTurns).
    Raises UserError and HarnessError that say why it does not come up.
    """
    cost = cost or ServingCost()
    config = choose_kind(config, device)
    if isinstance(config, TransformersServeConfig):
        yield from _transformers(
            source, sampling, student_device, student_dtype, device if is_local_evaluator else "cpu", num_under_way
        )
    elif isinstance(config, EndpointServeConfig):
        model = config.model or source.name
        settings = _policy_settings(sampling, model, config.base_url) | {"api_key_env": config.api_key_env}
        settings |= {"wait_for_server_s": config.wait_for_server_s, "prices": cost.prices.model_dump()}
        shared = expand_devices(device) if config.shares_gpu else []
        service = StudentService(
            _factory(settings), "endpoint", {"base_url": config.base_url, "model": model}, shared_devices=shared
        )
        with taking_turns(service, Endpoint(config.base_url), num_under_way):
            yield service
    else:
        with _vllm(
            config, source, sampling, name, out_dir, device if is_local_evaluator else "cpu", seed, num_under_way, say
        ) as service:
            yield service


@contextlib.contextmanager
def _vllm(
    config: VllmServeConfig,
    source: StudentSource,
    sampling: SamplingConfig,
    name: str,
    out_dir: Path,
    device: str,
    seed: int,
    num_under_way: Callable[[], int],
    say: Callable[[str], None],
) -> Iterator[StudentService]:
    evaluator = device_indices(device)
    num_visible = num_visible_gpus()
    if config.gpus is not None:
        gpus, shared = config.gpus, sorted(set(config.gpus) & set(evaluator))
    elif num_visible:
        gpus, shared = choose_gpus(config.num_gpus, evaluator, num_visible)
    else:  # a vLLM for CPUs, or the stand-in of a test
        gpus, shared = None, []
    template = find_template(source, config.chat_template)
    template_path = None
    if template.text is not None:
        template_path = out_dir / TEMPLATE_FILE
        template_path.parent.mkdir(parents=True, exist_ok=True)
        template_path.write_text(template.text, encoding="utf-8")
    server = VllmServer(
        lambda port: vllm_command(
            config, source, template, port=port, seed=seed, name=name, template_path=template_path,
            shares_gpu=bool(shared), gpus=gpus,
        ),
        log_path=out_dir / LOG_FILE, port=config.port, start_timeout_s=config.start_timeout_s, say=say,
    )  # fmt: skip
    service = StudentService(
        lambda settings: ServedStudentPolicy(_policy_config(sampling, server)), "vllm", {}, num_gpus=config.num_gpus,
        server=server, shared_devices=[f"cuda:{gpu}" for gpu in shared],
    )  # fmt: skip
    if shared:
        say(f"one GPU for both: the server is paused while the evaluator uses {', '.join(service.shared_devices)}")
    try:
        with taking_turns(service, server, num_under_way, start=server.start):
            service.description |= describe_server(server) | {
                "template_family": template.family,
                "batch_invariant": config.batch_invariant,
                "gpus": gpus,
                "shared_gpus": shared,
            }
            yield service
    finally:
        server.close()


def _transformers(
    source: StudentSource,
    sampling: SamplingConfig,
    student_device: str,
    dtype: str | None,
    evaluator_device: str,
    num_under_way: Callable[[], int],
) -> Iterator[StudentService]:
    from training.student_policy import TransformersPolicy, load_student

    if source.adapter is not None:
        raise UserError(f"{source.name}: is an adapter; serve it with vLLM, or give the merged student")
    student = load_student(source.model, device=student_device, dtype=dtype)
    indices = device_indices(student_device)
    shared = [f"cuda:{gpu}" for gpu in indices if gpu in device_indices(evaluator_device)]
    service = StudentService(
        lambda settings: TransformersPolicy(student, sampling), "transformers",
        {"device": student_device, "dtype": str(student.model.dtype)},
        num_gpus=len(indices), shared_devices=shared,
    )  # fmt: skip
    with taking_turns(service, LockedStudent(student), num_under_way):
        yield service


def _factory(settings: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], Policy]:
    config = VLLMPolicyConfig.model_validate(settings)
    return lambda _: ServedStudentPolicy(config)


def _policy_settings(sampling: SamplingConfig, model: str, base_url: str) -> dict[str, Any]:
    return {
        "model": model,
        "base_url": base_url,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_output_tokens": sampling.max_new_tokens,
    }


def _policy_config(sampling: SamplingConfig, server: VllmServer) -> VLLMPolicyConfig:
    assert server.command is not None
    settings = _policy_settings(sampling, server.command.model, server.base_url)
    # a name that no one sets: the server has no key, and another service's must not reach it
    own = {"api_key_env": "PASSWRIGHT_STUDENT_SERVER_KEY", "max_retries": OWN_SERVER_RETRIES, "timeout_s": 7200.0}
    return VLLMPolicyConfig.model_validate(settings | own)
