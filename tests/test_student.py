"""The tiny student: its size, its tokenizer, that it is drawn from a seed, and that a folder holds all of it."""

from __future__ import annotations

import json

import pytest
import torch

from training.chat_tokens import load_template
from training.student import TAG_TOKENS, TinyStudentConfig, build_tiny_student, train_tokenizer

LINES = ["def pattern(in_0, in_1):\n", "    tmp_0 = in_0 + in_1\n", "    return torch.nn.functional.relu(tmp)\n"]
TEXTS = [json.dumps({"file_text": "".join(LINES) + f"# width {width} at 0.{width}ms\n"}) for width in range(40)]


@pytest.fixture(scope="module")
def student(tmp_path_factory):
    out = tmp_path_factory.mktemp("student")
    return out, *build_tiny_student(TEXTS, TinyStudentConfig(vocab_size=400), out)


def test_the_default_student_has_about_900_thousand_parameters():
    from transformers import Qwen3Config, Qwen3ForCausalLM

    tiny = TinyStudentConfig()
    with torch.device("meta"):
        config = Qwen3Config(
            vocab_size=tiny.vocab_size,
            hidden_size=tiny.hidden_size,
            intermediate_size=tiny.intermediate_size,
            num_hidden_layers=tiny.num_layers,
            num_attention_heads=tiny.num_heads,
            num_key_value_heads=tiny.num_kv_heads,
            head_dim=tiny.hidden_size // tiny.num_heads,
            tie_word_embeddings=True,
        )
        assert 850_000 < Qwen3ForCausalLM(config).num_parameters() < 950_000


def test_every_text_survives_its_tokens(student):
    _, _, tokenizer = student
    texts = ["a\n\tb  c\r\n", "déjà \U0001f600 \x00\x7f", "12.5 0x1F", '{"a": "\\n\\"\\\\n"}', "<tool_call>\n{}", ""]
    for text in texts:
        assert tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"]) == text


def test_a_repeated_line_is_one_token_and_a_number_is_its_digits(student):
    _, _, tokenizer = student
    escaped = json.dumps(LINES[2])[1:-1]
    assert len(tokenizer(escaped, add_special_tokens=False)["input_ids"]) == 1
    assert tokenizer.tokenize("1024") == list("1024")


def test_tags_are_single_tokens_and_text(student):
    _, _, tokenizer = student
    for tag in TAG_TOKENS:
        ids = tokenizer(tag, add_special_tokens=False)["input_ids"]
        assert len(ids) == 1
        assert tokenizer.decode(ids, skip_special_tokens=True) == tag


def test_a_folder_holds_weights_tokenizer_and_template(student):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    out, model, tokenizer = student
    loaded = AutoModelForCausalLM.from_pretrained(out)
    for name, value in model.state_dict().items():
        assert torch.equal(value, loaded.state_dict()[name])
    again = AutoTokenizer.from_pretrained(out)
    assert again.get_vocab() == tokenizer.get_vocab()
    assert again.chat_template == load_template()
    assert (again.eos_token, again.pad_token) == ("<|im_end|>", "<|endoftext|>")
    assert again(TEXTS[3])["input_ids"] == tokenizer(TEXTS[3])["input_ids"]


def test_the_seed_decides_the_weights(student, tmp_path):
    out, model, _ = student
    state = torch.random.get_rng_state()
    same, _ = build_tiny_student(TEXTS, TinyStudentConfig(vocab_size=400), tmp_path / "same")
    other, _ = build_tiny_student(TEXTS, TinyStudentConfig(vocab_size=400, seed=1), tmp_path / "other")
    name = "model.layers.0.mlp.up_proj.weight"
    assert torch.equal(same.state_dict()[name], model.state_dict()[name])
    assert not torch.equal(other.state_dict()[name], model.state_dict()[name])
    assert torch.equal(torch.random.get_rng_state(), state)  # the caller's random numbers are left alone
    assert (out / "tokenizer.json").read_bytes() == (tmp_path / "same" / "tokenizer.json").read_bytes()


def test_a_small_corpus_gives_a_smaller_vocabulary_and_still_works():
    tokenizer = train_tokenizer(["ab"], TinyStudentConfig())
    assert len(tokenizer) < 300
    assert tokenizer.decode(tokenizer("xyz é")["input_ids"]) == "xyz é"
