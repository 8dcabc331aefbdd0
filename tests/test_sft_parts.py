"""The parts of a supervised run: rows and their limits, packing, the collator, attention, fused ops, master weights."""

from __future__ import annotations

import io
import json
import math

import pytest
import torch
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM

from eval_harness.errors import UserError
from tests.family_conversations import CONVERSATIONS
from tests.family_tokenizers import build_tokenizer
from training import attention
from training.attention import Kernel
from training.fused_ops import fused
from training.master_adamw import MasterAdamW, join_bits, split_bits
from training.model_shape import load_architecture, shape_of
from training.sft_collator import RowCollator
from training.sft_rows import pack_rows, tokenize_rows
from training.sft_split import split_by_task
from trajectories.tools import TOOLS

SHORT = CONVERSATIONS["no reasoning"][:2] + CONVERSATIONS["no reasoning"][-1:]
"""Prompt and last word."""


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer("qwen3_thinking_2507", json.dumps(CONVERSATIONS, ensure_ascii=False) * 3)


def _dataset(*conversations, **columns):
    rows = [
        {"messages": messages, "tools": json.dumps(TOOLS), "trajectory_id": f"t{index}", "untrained_turns": []}
        | {name: values[index] for name, values in columns.items()}
        for index, messages in enumerate(conversations)
    ]
    return Dataset.from_list(rows, on_mixed_types="use_json")


def test_a_row_over_the_limit_is_cut_after_a_whole_turn_or_left_out(tokenizer):
    messages = CONVERSATIONS["reasoning in every turn"]
    dataset = _dataset(messages)
    whole, report = tokenize_rows(dataset, tokenizer, max_length=None, show_progress=False)
    ids, labels = whole[0]["input_ids"], whole[0]["labels"]
    assert report.end_of_turn == tokenizer.eos_token_id
    trained_ends = [
        i + 1 for i, (token, label) in enumerate(zip(ids, labels, strict=True)) if label == token == report.end_of_turn
    ]
    assert len(trained_ends) == 4
    for limit in (trained_ends[1], trained_ends[2] - 1):
        rows, report = tokenize_rows(dataset, tokenizer, max_length=limit, too_long="cut_at_turn", show_progress=False)
        assert rows[0]["input_ids"] == ids[: trained_ends[1]] and rows[0]["labels"] == labels[: trained_ends[1]]
        assert report.cut == {"t0": (len(ids), trained_ends[1])} and report.too_long == {}
        assert "1 longer than" in report.describe() and "cut after a turn" in report.describe()
    both = _dataset(messages, SHORT)
    rows, report = tokenize_rows(both, tokenizer, max_length=len(ids) - 1, show_progress=False)
    assert report.too_long == {"t0": len(ids)} and len(rows) == 1 and report.cut == {}
    with pytest.raises(UserError, match="2 of 2 are longer"):  # the prompts alone are
        tokenize_rows(both, tokenizer, max_length=40, too_long="cut_at_turn", show_progress=False)


def test_rows_with_too_little_to_train_are_left_out_and_named(tokenizer):
    long = CONVERSATIONS["reasoning in every turn"]
    dataset = _dataset(long, SHORT, long, untrained_turns=[[], [], [0, 1, 2, 3]])
    rows, report = tokenize_rows(dataset, tokenizer, max_length=None, min_trained_tokens=40, show_progress=False)
    assert len(rows) == 1 and report.untrained == ["t1", "t2"]
    # a cut that leaves too little is no row either
    with pytest.raises(UserError, match="have fewer than 4000 tokens"):
        tokenize_rows(dataset, tokenizer, max_length=None, min_trained_tokens=4000, show_progress=False)


def test_reasoning_can_be_left_out_on_purpose(tokenizer):
    kept, _ = tokenize_rows(_dataset(CONVERSATIONS["reasoning in every turn"]), tokenizer, max_length=None)
    dropped, _ = tokenize_rows(
        _dataset(CONVERSATIONS["reasoning in every turn"]), tokenizer, max_length=None, reasoning="drop"
    )
    plain, _ = tokenize_rows(_dataset(CONVERSATIONS["no reasoning"]), tokenizer, max_length=None)
    assert dropped[:] == plain[:] != kept[:]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 20), min_size=1, max_size=30), st.integers(20, 40))
def test_packing_keeps_every_row_whole(lengths, limit):
    rows = [{"input_ids": [100 * i + j for j in range(n)], "labels": [-100] * n} for i, n in enumerate(lengths)]
    features = tokenize_features()
    packed = pack_rows(Dataset.from_list(rows, features=features), limit)
    found = []
    for row in packed:
        assert len(row["input_ids"]) == sum(row["seq_lengths"]) <= limit
        start = 0
        for length in row["seq_lengths"]:
            found.append(row["input_ids"][start : start + length])
            start += length
    assert sorted(found) == sorted(row["input_ids"] for row in rows)
    assert len(packed) <= 2 * math.ceil(sum(lengths) / limit)


def tokenize_features():
    from datasets import Features, LargeList, Value

    return Features({name: LargeList(Value("int32")) for name in ("input_ids", "labels")})


def test_whole_tasks_are_held_out_and_the_same_ones_of_a_larger_dataset():
    tasks = [f"task{i % 10}" for i in range(40)]
    train, held_out = split_by_task(Dataset.from_dict({"task_id": tasks}), 0.15, seed=0)
    assert len(set(held_out["task_id"])) == 2 and len(held_out) == 8
    assert not set(held_out["task_id"]) & set(train["task_id"]) and len(train) == 32
    again, _ = split_by_task(Dataset.from_dict({"task_id": tasks[::-1]}), 0.15, seed=0)
    assert set(again["task_id"]) == set(train["task_id"])
    with pytest.raises(UserError, match="one task"):
        split_by_task(Dataset.from_dict({"task_id": ["a", "a"]}), 0.5, seed=0)


ROWS = [
    {"input_ids": [5, 6, 7, 8, 9], "labels": [-100, 6, 7, -100, 9]},
    {"input_ids": [11, 12, 13], "labels": [11, 12, 13]},
    {"input_ids": [21, 22, 23, 24, 25, 26, 27], "labels": [-100, -100, 23, 24, 25, 26, 27]},
]


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    attention.register(attention.TORCHS_CHOICE)
    return AutoModelForCausalLM.from_config(load_architecture("tiny"), attn_implementation=attention.NAME).float()


def test_joined_rows_do_not_see_one_another(model):
    """Logits of a row are the same alone and among others, with any of the ways to call the kernel."""
    batch = RowCollator(pad_token_id=0, multiple_of=4)(ROWS)
    assert batch["input_ids"].shape == (1, 16) and batch["row_lengths"] == [5, 3, 8]
    assert batch["labels"][0, 5] == -100  # a row's first token is nobody's prediction
    assert batch["position_ids"][0].tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 0, 1, 2, 3, 4, 5, 6, 7]
    labels = batch.pop("labels")
    for kernel in (attention.TORCHS_CHOICE, Kernel("torch", "", shares_heads=False)):
        attention.register(kernel)
        with torch.no_grad():
            joined = model(**batch, use_cache=False).logits[0]
            for row, start in zip(ROWS, (0, 5, 8), strict=True):
                alone = model(input_ids=torch.tensor([row["input_ids"]]), use_cache=False).logits[0]
                assert torch.allclose(joined[start : start + len(alone)], alone, atol=1e-5)
    assert (labels != -100).sum() == sum(label != -100 for row in ROWS for label in row["labels"][1:])
    with pytest.raises(ValueError, match="one row at a time"):
        RowCollator(0, with_row_lengths=False)(ROWS)
    assert set(RowCollator(0, multiple_of=4, with_row_lengths=False)(ROWS[:1])) == {
        "input_ids",
        "labels",
        "position_ids",
    }


def test_fused_ops_change_no_number_and_leave_no_trace(model):
    batch = {key: value for key, value in RowCollator(0)(ROWS).items() if key != "labels"}

    def outcome():
        model.zero_grad()
        logits = model(**batch, use_cache=False).logits
        logits.logsumexp(-1).sum().backward()
        return [logits.detach(), *(p.grad.clone() for p in model.parameters())]

    before = outcome()
    with fused(model, compiled=False) as counts:
        # two norms of a layer, two of its heads, one at the end
        assert counts == {"norms": 2 * 4 + 1, "gates": 2, "rotations": 1}
        within = outcome()
    for left, right in zip(before, within, strict=True):
        assert torch.allclose(left, right, atol=1e-5)
    assert not any("forward" in vars(module) for module in model.modules())
    assert outcome()[0].equal(before[0])


def test_bits_split_and_join_exactly():
    values = torch.randn(20_000) * torch.exp(6 * torch.randn(20_000))
    values = torch.cat([values, torch.tensor([0.0, -0.0, 1.0, -1.0, 3e38, 1e-40])])
    high, low = split_bits(values)
    assert torch.equal(join_bits(high, low), values)
    # the weight that computes is the nearest one, but for ties
    nearest = values.bfloat16()
    assert ((high.float() - values).abs() <= (nearest.float() - values).abs()).all()


def test_master_weights_follow_float32_where_bfloat16_stands_still():
    torch.manual_seed(0)
    start = torch.randn(40, 30).bfloat16()
    weight = torch.nn.Parameter(start.clone())
    exact = torch.nn.Parameter(start.float())
    plain = torch.nn.Parameter(start.clone())
    options = {"lr": 2e-5, "betas": (0.9, 0.95), "weight_decay": 0.1}
    ours = MasterAdamW([weight], **options)
    theirs, naive = torch.optim.AdamW([exact], **options), torch.optim.AdamW([plain], **options)
    for step in range(60):
        gradient = torch.randn(40, 30).bfloat16() + 1
        for parameter in (weight, exact, plain):
            parameter.grad = gradient.to(parameter.dtype)
        for optimizer in (ours, theirs, naive):
            optimizer.step()
        if step == 29:  # through a checkpoint and on, with nothing rounded
            buffer = io.BytesIO()
            torch.save(ours.state_dict(), buffer)
            buffer.seek(0)
            ours = MasterAdamW([weight], **options)
            ours.load_state_dict(torch.load(buffer))
            assert ours.state[weight]["low_bits"].dtype == torch.int16
    assert torch.allclose(join_bits(weight.data, ours.state[weight]["low_bits"]), exact, atol=1e-6)
    moved = (exact - start.float()).abs().mean()
    assert (plain.float() - exact).abs().mean() > 0.3 * moved  # what would have been lost


def test_flops_are_those_that_torch_counts():
    from torch.utils.flop_counter import FlopCounterMode

    config = load_architecture("tiny")
    shape = shape_of(config)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float()
    length = 64
    ids = torch.randint(0, 512, (1, length))
    with FlopCounterMode(display=False) as counter:
        model(input_ids=ids, use_cache=False).logits.sum().backward()
    # eager attention computes all pairs, ours half of them; torch counts no gradient of the embedding
    ours = shape.training_flops(tokens=length, trained=length, positions=length * length)
    assert counter.get_total_flops() == pytest.approx(ours, rel=0.02)


def test_shapes_are_the_models_own():
    shapes = {name: shape_of(load_architecture(name)) for name in ("qwen3-4b", "qwen3-30b-a3b", "smollm2-135m")}
    assert shapes["qwen3-4b"].num_parameters == 4_022_468_096
    assert shapes["smollm2-135m"].num_parameters == 134_515_008
    mixture = shapes["qwen3-30b-a3b"]
    assert mixture.num_parameters == 30_532_122_624 and 2.7e9 < mixture.num_active < 2.8e9
    scaled = load_architecture("tiny", rope_parameters={"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4,
                                                        "original_max_position_embeddings": 32768})  # fmt: skip
    assert shape_of(scaled).max_positions == 131072
