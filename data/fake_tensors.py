"""Trying sizes on fake tensors: a refusal is an answer there, not an event. Imports no torch."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator


@contextlib.contextmanager
def quiet_refusals() -> Iterator[None]:
    """A size that an operator refuses is an answer inside the context; torch logs it with a traceback otherwise."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
