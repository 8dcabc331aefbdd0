"""Tokens of prompts by real vocabularies: python -m tests.prompt_tokens FILE.json|FILE.tiktoken ... Not a test.

The vocabularies are not bundled; docs/agents.md says where those of its table came from.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path

import regex
from tokenizers import Tokenizer

from data.passbench import load_tasks
from data.task import Task
from tests.many_graphs import many_graphs_task
from trajectories.prompts import render_messages
from trajectories.tools import TOOLS

_SPLIT = regex.compile(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""Qwen's: one digit a token."""


def load_counter(path: Path) -> Callable[[str], int]:
    """Text -> number of tokens, from a tokenizer.json or a list of ranked byte strings."""
    if path.suffix == ".json":
        tokenizer = Tokenizer.from_file(str(path))
        return lambda text: len(tokenizer.encode(text).ids)
    ranks = {base64.b64decode(token): int(rank) for token, rank in map(str.split, path.read_text().splitlines())}

    @cache
    def count(piece: str) -> int:
        parts = [bytes([byte]) for byte in piece.encode()]
        while len(parts) > 1:
            pairs = [ranks.get(left + right, sys.maxsize) for left, right in pairwise(parts)]
            if (best := min(pairs)) == sys.maxsize:
                break
            at = pairs.index(best)
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        return len(parts)

    return lambda text: sum(map(count, _SPLIT.findall(text)))


def _prompt(task: Task) -> str:
    return "\n".join(message.content for message in render_messages(task, "cuda", 50))


def main() -> None:
    tasks = load_tasks("passbench_lite")
    prompts = {
        "longest of passbench_lite": max(map(_prompt, tasks), key=len),
        "most graphs of passbench_lite": _prompt(max(tasks, key=lambda task: len(task.graphs))),
        "396 graphs of one structure": _prompt(many_graphs_task(396)),
        "396 graphs of 12 structures": _prompt(many_graphs_task(396, num_structures=12)),
        "the tools": json.dumps(TOOLS),
    }
    for name in sys.argv[1:]:
        count = load_counter(Path(name))
        for title, text in prompts.items():
            tokens = count(text)
            print(f"{Path(name).name}: {title}: {len(text)} characters, {tokens} tokens, {len(text) / tokens:.2f} each")


if __name__ == "__main__":
    main()
