"""The model zoo: what it lists, the sizes it promises, and that its models really run and depend on their inputs."""

import importlib.util
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st

from data.construct.example import Example
from data.construct.model_zoo import KNOWN_GOOD, build_example, find_model, list_models, size_variants, symbols_of
from data.construct.zoo_check import check_models, domain_of, first_tensor, known_source, line_of
from data.construct.zoo_entry import MAX_COST_RATIO, cost_of, spread_sizes
from data.construct.zoo_overrides import SPECIAL
from data.construct.zoo_providers import PROVIDERS

EXAMPLES = (
    "transformers.bert",
    "transformers.llama.causal_lm",
    "transformers.t5",
    "transformers.mixtral",
    "transformers.mamba2",
    "transformers.vit",
    "transformers.resnet",
    "transformers.swin",
    "transformers.whisper",
    "transformers.wav2vec2",
    "transformers.clip",
    "transformers.llava",
    "transformers.qwen2_vl",
    "transformers.patchtst",
)
"""Models of every domain: encoders, decoders, both, experts, state spaces, convolutions, windows, image tokens."""


CONTENT = ("input_ids", "pixel_values", "input_features", "input_values", "past_values")


def run(example: Example) -> torch.Tensor:
    with torch.no_grad():
        return first_tensor(example.module(*example.args, **example.kwargs))


def reversed_content(value: torch.Tensor) -> torch.Tensor:
    """Something else of the same shape; of token ids only the first text tokens change places."""
    if value.is_floating_point():
        return value.flip(0, -1) + 1
    text = value.shape[1] - 64
    return torch.cat([value[:, : max(text, 0)], value[:, max(text, 0) :].flip(1)], 1)


def test_known_models_of_every_domain():
    domains = [entry.domain for entry in KNOWN_GOOD]
    assert len({entry.architecture for entry in KNOWN_GOOD}) >= 100
    assert {domain: domains.count(domain) >= 10 for domain in ("text", "vision", "audio", "multimodal")} == {
        "text": True,
        "vision": True,
        "audio": True,
        "multimodal": True,
    }


def test_ids_are_unique_and_plain():
    ids = [entry.model_id for entry in KNOWN_GOOD]
    assert len(set(ids)) == len(ids)
    assert all(name == name.lower() and not set(name) & set("/\\ -") for name in ids)


def test_listing_known_models_imports_no_torch():
    code = (
        "import sys; from data.construct import model_zoo; print(len(model_zoo.list_models()), 'torch' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == [str(len(KNOWN_GOOD)), "False"]


def test_known_models_are_in_the_library():
    listed = {entry.model_id: entry for entry in list_models(only_known=False)}
    assert len(listed) > len(KNOWN_GOOD)
    for entry in KNOWN_GOOD:
        assert (listed[entry.model_id].origin, listed[entry.model_id].architecture) == (
            entry.origin,
            entry.architecture,
        )


def test_overrides_name_architectures_of_the_library_and_makers_that_exist():
    architectures = {entry.architecture for entry in list_models(only_known=False)}
    makers = {maker for special in SPECIAL.values() for maker in special.inputs.values() if maker is not None}
    assert not set(SPECIAL) - architectures
    assert not makers - set(PROVIDERS)


def test_unknown_names_say_what_is_near():
    with pytest.raises(ValueError, match=r"no model 'transformers\.bertt'; the nearest is 'transformers\.bert'"):
        find_model("transformers.bertt")
    with pytest.raises(ValueError, match="no zoo source is called 'torchhub'; there are transformers, timm"):
        list_models(("torchhub",))
    with pytest.raises(ValueError, match="sized by batch, sequence, not by batch, image"):
        build_example(find_model("transformers.bert"), {"batch": 1, "image": 64}, torch.float32)


@pytest.mark.skipif(importlib.util.find_spec("timm") is not None, reason="timm is installed")
def test_timm_is_named_with_its_extra():
    with pytest.raises(ImportError, match=r"passwright\[timm\]"):
        list_models(("timm",))


def test_size_variants_are_ten_and_vary_every_symbol():
    for entry in KNOWN_GOOD:
        variants = size_variants(entry)
        costs = [cost_of(sizes) for sizes in variants[1:]]
        assert variants[0] == symbols_of(entry), entry.model_id
        assert len({tuple(sizes.items()) for sizes in variants}) == len(variants) == 10, entry.model_id
        assert all(len({sizes[symbol] for sizes in variants}) >= 3 for symbol in entry.symbols), entry.model_id
        assert costs == sorted(costs), entry.model_id


@given(
    choices=st.dictionaries(
        st.sampled_from(["batch", "sequence", "image"]),
        st.lists(st.integers(1, 256), min_size=1, max_size=6, unique=True),
        min_size=1,
    ),
    num=st.integers(1, 12),
)
def test_spread_sizes_are_legal_and_distinct(choices: dict[str, list[int]], num: int):
    variants = spread_sizes("name", choices, num)
    base = cost_of(variants[0])
    assert variants == spread_sizes("name", choices, num)
    assert len({tuple(sizes.items()) for sizes in variants}) == len(variants) <= num
    assert all(sizes[symbol] in values for sizes in variants for symbol, values in choices.items())
    assert all(base / MAX_COST_RATIO <= cost_of(sizes) <= base * MAX_COST_RATIO for sizes in variants)


@pytest.mark.parametrize("model_id", EXAMPLES)
def test_model_runs_at_two_sizes_and_depends_on_its_inputs(model_id: str):
    entry = find_model(model_id)
    base, other = size_variants(entry)[0], size_variants(entry)[-1]
    example = build_example(entry, base, torch.float32)
    answer = run(example)
    assert not example.module.training
    assert torch.isfinite(answer).all()
    assert torch.equal(answer, run(build_example(entry, base, torch.float32)))
    for name in CONTENT:
        if name in example.kwargs:
            changed = {**example.kwargs, name: reversed_content(example.kwargs[name])}
            assert not torch.allclose(answer, run(Example(example.module, (), changed))), name
    assert torch.isfinite(run(build_example(entry, other, torch.float32))).all()


@pytest.mark.parametrize("model_id", ["transformers.bert", "transformers.vit", "transformers.whisper"])
def test_weights_are_the_same_at_every_size_but_for_tables_of_positions(model_id: str):
    entry = find_model(model_id)
    sizes = size_variants(entry)
    small, large = (build_example(entry, sizes[index], torch.float32).module.state_dict() for index in (0, -1))
    assert small.keys() == large.keys()
    other = [name for name in small if small[name].shape != large[name].shape or not small[name].equal(large[name])]
    assert all("position" in name for name in other)
    assert bool(other) == (model_id != "transformers.bert")


def test_half_precision_keeps_statistics_and_computed_tables_whole():
    entry = find_model("transformers.resnet")
    example = build_example(entry, symbols_of(entry), torch.bfloat16)
    tensors = {name: value for name, value in example.module.state_dict().items() if value.is_floating_point()}
    assert example.kwargs["pixel_values"].dtype is torch.bfloat16
    assert {value.dtype for name, value in tensors.items() if "normalization" in name} == {torch.float32}
    assert {value.dtype for name, value in tensors.items() if "convolution" in name} == {torch.bfloat16}
    assert run(example).dtype is torch.bfloat16
    rotary = build_example(find_model("transformers.llama"), {"batch": 1, "sequence": 16}, torch.float16).module
    assert rotary.rotary_emb.inv_freq.dtype is torch.float32
    assert rotary.embed_tokens.weight.dtype is torch.float16


def test_padding_and_image_tokens_are_where_the_model_expects_them():
    example = build_example(find_model("transformers.llava"), {"batch": 2, "sequence": 16, "image": 64}, torch.float32)
    ids, mask = example.kwargs["input_ids"], example.kwargs["attention_mask"]
    image_tokens = (ids == example.module.config.image_token_id).sum(1)
    assert image_tokens.tolist() == [64, 64]
    assert mask.sum(1).tolist() == [80, 76]
    assert mask[1, -4:].tolist() == [0, 0, 0, 0]


@pytest.mark.slow
def test_a_check_tells_what_failed_and_goes_on():
    bert = find_model("transformers.bert")
    broken = replace(bert, model_id="transformers.broken", origin="transformers.models.bert.NoSuchModel")
    failed, passed = check_models([broken, bert], "float32", 2, 120.0)
    assert (failed.passed, passed.passed) == (False, True)
    assert "NoSuchModel" in failed.reason and "NoSuchModel" in line_of(failed)
    assert (passed.num_sizes, passed.entry) == (2, bert)
    (late,) = check_models([bert], "float32", 2, 0.001)
    assert late.reason == "over 0.001 s"
    names: dict[str, Any] = {}
    exec(known_source([passed]), names)
    assert names["KNOWN_GOOD"] == (bert,)
    assert names["TRANSFORMERS_VERSION"] == transformers.__version__


def test_domains_come_from_what_a_model_reads():
    assert domain_of(("batch", "sequence", "image"), "vision") == "multimodal"
    assert domain_of(("batch", "target", "frames"), "multimodal") == "audio"
    assert domain_of(("batch",), "audio") == "audio"
