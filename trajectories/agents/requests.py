"""The requests of a search: one template a kind, in templates/agents/. A request's first line says its kind.

Their words are part of what a student learns from and of what a resume compares: REQUEST_VERSION is in every record.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

REQUEST_VERSION = "1"
"""Raised with any change of a template."""
TEMPLATES_DIR = Path(__file__).parent.parent / "templates" / "agents"
MARK = "Request: "


def render_request(kind: str, **data: Any) -> str:
    """kind: a template's name without ".txt.j2"."""
    text = _environment().get_template(f"{kind}.txt.j2").render(**data).strip()
    return f"{MARK}{kind}\n\n{text}"


def kind_of(request: str) -> str:
    """The kind of the last request in a message; empty if it holds none."""
    for line in reversed(request.splitlines()):
        if line.startswith(MARK):
            return line.removeprefix(MARK).strip()
    return ""


@cache
def _environment() -> Environment:
    # plain text for a model: nothing is escaped
    return Environment(
        loader=FileSystemLoader(TEMPLATES_DIR), autoescape=False, undefined=StrictUndefined, trim_blocks=True
    )
