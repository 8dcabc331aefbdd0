"""Small tokenizers of the model families, built offline: their special tokens and splitting, merges from a text."""

from __future__ import annotations

from pathlib import Path

import trl
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

_TRL_TEMPLATES = Path(trl.__file__).parent / "chat_templates"
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN_TAGS = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"]
_CHATML = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
_LLAMA = [
    "<|begin_of_text|>",
    "<|end_of_text|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "<|python_tag|>",
]
SMOLLM2_TEMPLATE = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n"
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + "
    "message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""As the model's tokenizer_config.json has it."""


def own_template(family: str) -> str:
    """The family's own template for inference. Qwen3-Thinking-2507's is Qwen3's with the reasoning opened."""
    if family == "smollm2":
        return SMOLLM2_TEMPLATE
    if family != "qwen3_thinking_2507":
        return (_TRL_TEMPLATES / f"{family}.jinja").read_text(encoding="utf-8")
    text = (_TRL_TEMPLATES / "qwen3.jinja").read_text(encoding="utf-8")
    body = text[: text.rindex("{%- if add_generation_prompt")]
    return body + "{%- if add_generation_prompt %}\n    {{- '<|im_start|>assistant\\n<think>\\n' }}\n{%- endif %}"


def build_tokenizer(family: str, text: str) -> PreTrainedTokenizerFast:
    """A byte-level BPE of about a thousand tokens, with the family's own template."""
    is_llama, is_smollm = family.startswith("llama"), family == "smollm2"
    special = _LLAMA if is_llama else _CHATML
    tags = [] if is_llama or is_smollm else _QWEN_TAGS[: 4 if family == "qwen2_5" else 6]
    tokenizer = Tokenizer(models.BPE())
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=is_smollm)
    split = (
        pre_tokenizers.Digits(individual_digits=True) if is_smollm else pre_tokenizers.Split(Regex(_WORDS), "isolated")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1000,
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in special],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator([text], trainer)
    tokenizer.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in tags])
    # trimmed offsets, as these families have them: a mask that goes by offsets loses tokens of whitespace
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<|begin_of_text|>" if is_llama else None,
        eos_token="<|eot_id|>" if is_llama else "<|im_end|>",
        pad_token=special[1] if is_llama else special[0],
        clean_up_tokenization_spaces=False,
    )
    wrapped.chat_template = own_template(family)
    return wrapped
