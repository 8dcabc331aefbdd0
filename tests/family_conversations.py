"""Conversations as a student sees them, and what each family's model generates, written without any template."""

from __future__ import annotations

import json

FAMILIES = ["qwen2_5", "qwen3", "qwen3_thinking_2507", "llama3_1", "smollm2"]
NESTED = {
    "path": "d\u00e9j\u00e0/\U0001f600.py",
    "edits": [{"at": 3, "text": 'x = "\u03c0\\n"\n\t<tool_call>'}, None, True],
}


def call(name: str, arguments: object, number: int) -> dict:
    """One tool call in OpenAI's form, its arguments an object."""
    return {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": arguments}}


def _reply(text: str, number: int) -> dict:
    return {"role": "tool", "content": text, "tool_call_id": f"call_{number}", "name": "file_editor"}


def conversation(*, reasoning: bool = True, every: bool = True) -> list[dict]:
    """A call with nested arguments, two calls at once, empty content, a last word; every: reasoning in each turn."""
    turns = [
        {"role": "assistant", "content": "I look.", "tool_calls": [call("file_editor", NESTED, 1)]},
        _reply("first result\n  with <think> in it", 1),
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [call("pass_evaluator", {}, 2), call("file_editor", {"command": "view"}, 3)],
        },
        _reply("second result", 2),
        _reply("third result", 3),
        {"role": "assistant", "content": "", "tool_calls": [call("pass_evaluator", {}, 4)]},
        _reply("fourth result", 4),
        {"role": "assistant", "content": "Every graph is correct."},
    ]
    if reasoning:
        for index, message in enumerate(m for m in turns if m["role"] == "assistant"):
            if every or index % 2 == 0:
                message["reasoning_content"] = f'Thought {index}:\n\n- na\u00efve, then "this"\n- \u65e5\u672c'
    return [{"role": "system", "content": "SYSTEM."}, {"role": "user", "content": "USER asks."}, *turns]


def written_turns(family: str, messages: list[dict]) -> list[str]:
    """What the model generates in each turn, end of turn included, written without any template."""
    turns = []
    for message in messages:
        if message["role"] != "assistant":
            continue
        reasoning, content = message.get("reasoning_content"), message["content"]
        if family == "qwen3_thinking_2507":
            text = f"{reasoning}\n</think>\n\n" if reasoning else "</think>\n\n"
        elif family == "qwen3":
            text = f"<think>\n{reasoning or ''}\n</think>\n\n"
        else:
            text = f"<think>\n{reasoning}\n</think>\n\n" if reasoning else ""
        text += content
        key, between = ("parameters", "; ") if family == "llama3_1" else ("arguments", "\n")
        calls = []
        for call in message.get("tool_calls", []):
            arguments = json.dumps(call["function"]["arguments"], ensure_ascii=False)
            body = f'{{"name": "{call["function"]["name"]}", "{key}": {arguments}}}'
            calls.append(body if family == "llama3_1" else f"<tool_call>\n{body}\n</tool_call>")
        text += ("\n" if content and calls else "") + between.join(calls)
        turns.append(text + ("<|eot_id|>" if family == "llama3_1" else "<|im_end|>"))
    return turns


CONVERSATIONS = {
    "reasoning in every turn": conversation(),
    "reasoning missing in some turns": conversation(every=False),
    "no reasoning": conversation(reasoning=False),
}
