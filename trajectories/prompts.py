"""Prompts: the system message (what a pass is, what is allowed) and the task message (its graphs, compactly).

The words are in templates/. Deterministic: the same task, device and limits give the same text, which is part of what a
student learns from, so it is short. Never a solution. For many graphs one full graph a structure and a table of the
differences, see graph_listing.py; the complete files are in the workspace.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from pydantic import BaseModel, ConfigDict, Field

from data.task import Task
from trajectories.graph_listing import render_graphs
from trajectories.record import Message

PROMPT_VERSION = "3"
"""Of the templates and of the listing of graphs; recorded in every trajectory, and raised with any change of either.
3 differs from 2 in attempts of one turn alone."""
TEMPLATES_DIR = Path(__file__).parent / "templates"


class PromptConfig(BaseModel):
    """What the first messages hold, and how long they may be."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_chars: int = Field(default=20_000, ge=5_000)
    """System and task message together: at most 16K tokens, since a token is 1.3 characters at least even in tables of
    digits (docs/agents.md says how that was measured)."""
    example: bool = True
    """Show one small whole pass: about 900 characters. A student that knows the format needs none."""


def render_messages(task: Task, device: str, max_turns: int, config: PromptConfig | None = None) -> list[Message]:
    """The system and the user message of an attempt, together at most config.max_chars characters."""
    config = config or PromptConfig()
    system = render_system(device, example=config.example)
    return [
        Message(role="system", content=system),
        Message(role="user", content=render_task(task, device, max_turns, max_chars=config.max_chars - len(system))),
    ]


def render_system(device: str, *, example: bool = True) -> str:
    """device: "cpu" or "cuda", with or without an index."""
    return _render("system.txt.j2", dialect="cuda" if device.startswith("cuda") else "cpu", example=example)


def render_task(task: Task, device: str, max_turns: int, *, max_chars: int) -> str:
    """The task message, at most max_chars characters."""

    def render(graphs: str) -> str:
        return _render(
            "task.txt.j2",
            task_id=task.task_id,
            title=task.facts.get("title", ""),
            num_graphs=len(task.graphs),
            device=device.split(":")[0],
            max_turns=max_turns,
            graphs=graphs,
        )

    return render(render_graphs(task, max_chars=max_chars - len(render(""))))


def _render(template: str, **data: Any) -> str:
    return _environment().get_template(template).render(**data)


@cache
def _environment() -> Environment:
    # plain text for a model: nothing is escaped
    return Environment(
        loader=FileSystemLoader(TEMPLATES_DIR), autoescape=False, undefined=StrictUndefined, trim_blocks=True
    )
