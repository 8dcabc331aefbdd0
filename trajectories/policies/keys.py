"""Where a key comes from and where it never goes: read from the environment alone, struck out of every text we keep."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlsplit

from eval_harness.errors import UserError
from trajectories.record import storable

_LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0"})
_MIN_SECRET_CHARS = 8
"""Shorter keys ("EMPTY", "none") are placeholders; struck out of a model's text they would spoil it."""
_STRUCK_OUT = "***"


def read_key(env_name: str, base_url: str, *, is_required: bool = True) -> str:
    """The key in $env_name, or "" where none is needed: is_required is False, or the endpoint is on this machine.

    Raises UserError naming the variable.
    """
    key = os.environ.get(env_name, "").strip()
    if not key and is_required and urlsplit(base_url).hostname not in _LOCAL_HOSTS:
        raise UserError(f"policy.api_key_env: ${env_name} is not set; export the key of {base_url} in it")
    return key


class Redactor:
    """Makes what an endpoint said fit to be kept: without the key, and without what no JSON file can hold."""

    def __init__(self, key: str) -> None:
        self._key = key

    def error(self, text: str) -> str:
        """An error's text without the key, however short that is, and without a beginning of it: texts are cut."""
        text = storable(text)
        for length in range(len(self._key), min(len(self._key), _MIN_SECRET_CHARS) - 1, -1) if self._key else ():
            text = text.replace(self._key[:length], _STRUCK_OUT)
        return text

    def text(self, text: str) -> str:
        """A model's text: an endpoint that echoes headers would put the key into the record."""
        text = storable(text)
        return text.replace(self._key, _STRUCK_OUT) if len(self._key) >= _MIN_SECRET_CHARS else text

    def data(self, value: Any) -> Any:
        """The same of every string in plain data."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.data(key): self.data(item) for key, item in value.items()}
        return [self.data(item) for item in value] if isinstance(value, list) else value
