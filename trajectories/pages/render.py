"""render_page: the shared Jinja2 templates to one self-contained HTML text.

Everything that a template prints is escaped (models write task names, messages and code that end up here); an unknown
name in a template is an error. Only charts.py, code.py, prose.py and verdict_card.py make markup; they escape what they
are given.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from trajectories.pages.code import code_block, diff_block, language_of, shortened, visible
from trajectories.pages.prose import prose_html

TEMPLATES_DIR = Path(__file__).parent / "templates"


def render_page(template: str, **data: Any) -> str:
    """The template ("report.html.j2") with data. Raises jinja2.UndefinedError for a name that data lacks."""
    return _environment().get_template(template).render(**data)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES_DIR),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_printed,
        auto_reload=False,  # a look at the disk for each of thousands of cards
    )
    environment.filters |= {"percent": format_percent, "figure": format_figure, "pretty": format_json}
    environment.filters |= {"code": code_block, "diff": diff_block, "prose": prose_html, "language": language_of}
    environment.filters |= {"shortened": shortened, "visible": visible}
    return environment


def _printed(value: Any) -> Any:
    """Text with its control characters made visible; Jinja escapes it afterwards."""
    return value if isinstance(value, Markup) or not isinstance(value, str) else visible(value)


def format_percent(share: float | None) -> str:
    """0.375 -> "37.5"; a dash for None."""
    return "-" if share is None else f"{100 * share:.1f}"


def format_figure(value: float | None, digits: int = 3) -> str:
    """A number with fixed digits; a dash for None."""
    return "-" if value is None else f"{value:.{digits}f}"


def format_json(value: Any) -> str:
    """Indented JSON, as text: the page escapes it."""
    return json.dumps(value, indent=1, ensure_ascii=False, default=str)
