"""vLLM itself, colocated and as a server, beside the transformers engine: the same model, ids, answers and logprobs."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
import time

import pytest
import torch

from tests.rollout_helpers import build_rollout_tokenizer
from training.generation import Generated, GenerationRequest
from training.generation_transformers import TransformersEngine
from training.student_policy import SamplingConfig

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.skipif(
        not torch.cuda.is_available() or importlib.util.find_spec("vllm") is None, reason="needs a GPU and vLLM"
    ),
]
MAX_MODEL_LEN = 2048


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A small model with sizes that vLLM's kernels take, and its tokenizer, on disk."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    folder = tmp_path_factory.mktemp("student")
    tokenizer = build_rollout_tokenizer().tokenizer
    config = Qwen3Config(
        vocab_size=512, hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=64, max_position_embeddings=MAX_MODEL_LEN, tie_word_embeddings=False,
        eos_token_id=tokenizer.eos_token_id, bos_token_id=None,
    )  # fmt: skip
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _requests(count: int = 12) -> list[GenerationRequest]:
    draw = torch.Generator().manual_seed(0)
    return [
        GenerationRequest(f"k{n}", torch.randint(10, 400, (20 + 17 * n,), generator=draw).tolist(), 5 + 7 * n, seed=n)
        for n in range(count)
    ]


def _all(engine, wanted: list[GenerationRequest]) -> dict[str, Generated]:
    """Half of them from the start, the others as steps go by."""
    done: dict[str, Generated] = {}
    waiting = list(wanted)
    for _ in range(len(wanted) // 2):
        engine.submit(waiting.pop())
    until = time.monotonic() + 120
    while len(done) < len(wanted) and time.monotonic() < until:
        done |= {generated.key: generated for generated in engine.step()}
        if waiting:
            engine.submit(waiting.pop())
    assert set(done) == {request.key for request in wanted}
    return done


def _check(engine, checkpoint, sampling: SamplingConfig) -> None:
    """Whole answers within their limits, whose logprobs are those of a forward pass of the checkpoint."""
    from transformers import AutoModelForCausalLM

    wanted = _requests()
    done = _all(engine, wanted)
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.bfloat16).to("cuda").eval()
    for request in wanted:
        generated = done[request.key]
        assert generated.error == "" and len(generated.ids) == len(generated.logprobs)
        assert generated.finish_reason == ("length" if len(generated.ids) == request.max_new_tokens else "stop")
        ids = torch.tensor([[*request.prompt_ids, *generated.ids]], device="cuda")
        with torch.no_grad():
            logits = model(ids).logits[0, len(request.prompt_ids) - 1 : -1].float()
        expected = (logits / (sampling.temperature or 1.0)).log_softmax(-1)
        expected = expected.gather(1, ids[0, len(request.prompt_ids) :, None])[:, 0].cpu()
        assert torch.allclose(torch.tensor(generated.logprobs), expected, atol=0.1), request.key
    cancelled = GenerationRequest("cancelled", [20] * 30, 1000)
    engine.submit(cancelled)
    engine.step()
    engine.cancel("cancelled")
    assert set(_all(engine, wanted[:2])) == {"k0", "k1"}


def test_the_transformers_engine_on_a_gpu(checkpoint):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.bfloat16).to("cuda")
    sampling = SamplingConfig(temperature=0.9)
    _check(TransformersEngine(model, AutoTokenizer.from_pretrained(checkpoint), sampling), checkpoint, sampling)


def test_colocated_vllm(checkpoint, monkeypatch):
    from training.generation_vllm import VllmEngine

    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    monkeypatch.setenv("VLLM_USE_FLASHINFER_SAMPLER", "0")
    from vllm import LLM

    llm = LLM(
        model=str(checkpoint), max_model_len=MAX_MODEL_LEN, gpu_memory_utilization=0.2, enforce_eager=True,
        logprobs_mode="processed_logprobs", seed=0,
    )  # fmt: skip
    sampling = SamplingConfig(temperature=0.9)
    engine = VllmEngine(llm, sampling)
    assert engine.max_model_len == MAX_MODEL_LEN and engine.describe()["dtype"] == "torch.bfloat16"
    _check(engine, checkpoint, sampling)


def test_a_vllm_server(checkpoint):
    from training.generation_server import VllmServerEngine

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", str(checkpoint), "--port", str(port),
        "--max-model-len", str(MAX_MODEL_LEN), "--gpu-memory-utilization", "0.2", "--enforce-eager",
        "--logprobs-mode", "processed_logprobs",
    ]  # fmt: skip
    server = subprocess.Popen(command, env=os.environ | {"VLLM_USE_FLASHINFER_SAMPLER": "0"}, start_new_session=True)
    try:
        sampling = SamplingConfig(temperature=0.9)
        with _when_up(server, f"http://127.0.0.1:{port}", VllmServerEngine, sampling) as engine:
            assert engine.max_model_len == MAX_MODEL_LEN
            _check(engine, checkpoint, sampling)
    finally:
        os.killpg(server.pid, 15)
        server.wait(30)


def _when_up(server, url, engine_class, sampling):
    from eval_harness.errors import UserError

    until = time.monotonic() + 300
    while True:
        try:
            return engine_class(url, sampling)
        except UserError:
            assert server.poll() is None and time.monotonic() < until, "the server did not come up"
            time.sleep(2)
