"""What a model said, as HTML: its fenced code highlighted, the rest as it was written. Not a Markdown renderer."""

from __future__ import annotations

import re

from markupsafe import Markup

from trajectories.pages.code import code_block, language_named, plain_html, shortened

_FENCE = re.compile(
    r"^(?P<fence>```+|~~~+)[ \t]*(?P<name>[\w+#.-]*)[^\n]*\n(?P<code>.*?)(?:^(?P=fence)[ \t]*$|\Z)", re.M | re.S
)


def prose_html(text: str) -> Markup:
    """Escaped text; what stands between code fences is shown as code."""
    text = shortened(text)
    parts: list[Markup] = []
    position = 0
    for match in _FENCE.finditer(text):
        parts += _paragraph(text[position : match.start()])
        parts.append(code_block(match["code"], language_named(match["name"]), numbers=False))
        position = match.end()
    parts += _paragraph(text[position:])
    return Markup("").join(parts)


def _paragraph(text: str) -> list[Markup]:
    text = text.strip("\n")
    return [Markup('<div class="prose">%s</div>') % plain_html(text)] if text.strip() else []
