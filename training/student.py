"""A tiny Qwen3-style student, built offline: a byte-level BPE trained on the dataset's own text, random weights.

It is there to show the loop on two CPU cores: it learns a handful of trajectories by heart and knows nothing else. A
real student is a model name or folder in SftRunConfig; nothing here is used for it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field

from training.chat_tokens import END_OF_TURN, load_template

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

logger = logging.getLogger(__name__)

PAD_TOKEN = "<|endoftext|>"
SPECIAL_TOKENS = (PAD_TOKEN, "<|im_start|>", END_OF_TURN)
TAG_TOKENS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")
"""One token each, as in Qwen3, but text for the decoder: a parser needs to see them."""
_ADDED = re.compile("|".join(re.escape(token) for token in SPECIAL_TOKENS + TAG_TOKENS))


class TinyStudentConfig(BaseModel):
    """Sizes of the tiny student; the defaults give about 0.9 M parameters."""

    model_config = ConfigDict(extra="forbid")

    vocab_size: int = Field(default=2048, ge=300)
    """256 bytes, the special tokens, and merges learnt from the dataset."""
    num_layers: int = Field(default=4, ge=1)
    hidden_size: int = Field(default=128, ge=16)
    num_heads: int = Field(default=4, ge=1)
    num_kv_heads: int = Field(default=4, ge=1)
    intermediate_size: int = Field(default=256, ge=16)
    max_position: int = Field(default=32768, ge=128)
    """Longest conversation in tokens; rotary positions cost no parameters."""
    rope_theta: float = Field(default=10000.0, gt=0)
    chat_template: str = "qwen3_style"
    """Name of a template in training/templates."""
    seed: int = 0


def train_tokenizer(texts: Iterable[str], config: TinyStudentConfig) -> PreTrainedTokenizerFast:
    """A byte-level BPE of config.vocab_size tokens, with the chat template it is to be used with.

    Merges may span the words of a line but neither line breaks nor digits: prompts and pass files repeat whole lines,
    which so cost few tokens, while measured numbers, which differ each time, stay single digits.
    """
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            # the line break itself, or its two characters inside a tool call's JSON
            pre_tokenizers.Split(Regex(r"\\n|\n"), behavior="merged_with_previous"),
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=config.vocab_size - len(TAG_TOKENS),
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    # the trainer does not know added tokens when it reads text: merges would be spent on pieces of them
    tokenizer.train_from_iterator((part for text in texts for part in _ADDED.split(text)), trainer)
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in TAG_TOKENS])
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END_OF_TURN,
        pad_token=PAD_TOKEN,
        model_max_length=config.max_position,
        clean_up_tokenization_spaces=False,
    )
    wrapped.chat_template = load_template(config.chat_template)
    return wrapped


def build_tiny_student(
    texts: Iterable[str], config: TinyStudentConfig, out_dir: Path | str
) -> tuple[Qwen3ForCausalLM, PreTrainedTokenizerFast]:
    """Train the tokenizer on texts, draw weights from config.seed, save both below out_dir, and return them."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    tokenizer = train_tokenizer(texts, config)
    model_config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_hidden_layers=config.num_layers,
        num_attention_heads=config.num_heads,
        num_key_value_heads=config.num_kv_heads,
        head_dim=config.hidden_size // config.num_heads,
        max_position_embeddings=config.max_position,
        rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
        tie_word_embeddings=True,
        use_cache=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        model = Qwen3ForCausalLM(model_config).to(torch.float32)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    save_student(model, tokenizer, out_dir)
    logger.info("tiny student: %d parameters, %d tokens, in %s", model.num_parameters(), len(tokenizer), out_dir)
    return model, tokenizer


def save_student(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, out_dir: Path | str) -> None:
    """Write weights, tokenizer and the chat template together: a student is served with the template it learnt."""
    model.save_pretrained(out_dir)
    tokenizer.save_pretrained(out_dir)
