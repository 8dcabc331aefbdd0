"""Pass folders as text in a search's requests and answers, and reading lists of JSON out of an answer.

### pass_dir/Fuse.py
```python
...
```
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import islice
from typing import Any

from trajectories.workspace import PASS_DIR

_FILE = re.compile(
    r"^#+[ \t]*`?(?:pass_dir/)?(?P<path>[A-Za-z0-9_][\w./-]*\.(?:py|json))`?[ \t]*\n+(?P<fence>`{3,})[ \t]*\w*[ \t]*\n"
    r"(?P<text>.*?)^(?P=fence)[ \t]*$",
    re.MULTILINE | re.DOTALL,
)
_MAX_STARTS = 200
"""Places in one answer at which a list is looked for."""
_FENCED = re.compile(r"^```[ \t]*(?:json)?[ \t]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)


def render_files(files: Mapping[str, str]) -> str:
    """Every file under its path, fenced; the fence is longer than any in the text."""
    parts = []
    for path, text in files.items():
        longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
        fence = "`" * (longest + 1)
        language = "json" if path.endswith(".json") else "python"
        newline = "" if text.endswith("\n") else "\n"
        parts.append(f"### {PASS_DIR}/{path}\n{fence}{language}\n{text}{newline}{fence}")
    return "\n".join(parts)


def parse_files(text: str) -> dict[str, str]:
    """Path (with pass_dir/) -> text of every file that a text shows in that form; the last of a path counts."""
    return {f"{PASS_DIR}/{found['path']}": found["text"] for found in _FILE.finditer(text)}


def parse_objects(text: str) -> list[dict[str, Any]] | None:
    """The list of JSON objects in an answer: in a fence, or anywhere in its words; None if there is none.

    A single object counts as a list of one, and objects under one key ("plans": [...]) as that list.
    """
    decoder = json.JSONDecoder()
    for part in [*_FENCED.findall(text), text]:
        for match in islice(re.finditer(r"[\[{]", part), _MAX_STARTS):
            start = match.start()
            try:
                value, _ = decoder.raw_decode(part, start)
            except (ValueError, RecursionError):
                continue
            if (found := _objects(value)) is not None:
                return found
    return None


def _objects(value: Any) -> list[dict[str, Any]] | None:
    if isinstance(value, dict):
        lists = [each for each in value.values() if isinstance(each, list) and each and isinstance(each[0], dict)]
        value = lists[0] if len(lists) == 1 else [value]
    if isinstance(value, list) and all(isinstance(each, dict) for each in value):
        return value
    return None
