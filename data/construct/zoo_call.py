"""What makers of inputs know about the call that they make inputs for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass
class Call:
    """What a provider may look at while the arguments of one call are made."""

    model: torch.nn.Module
    config: Any
    sizes: Mapping[str, int]
    names: list[str]
    """Arguments that will be given."""
    made: dict[str, Any] = field(default_factory=dict)
    """Arguments made so far."""

    @property
    def batch(self) -> int:
        return self.sizes["batch"]

    @property
    def text_config(self) -> Any:
        return self.config.get_text_config(decoder=True)

    def setting(self, *names: str, default: Any = None, part: str = "") -> Any:
        """The first of these fields that the configuration, or its named part, has."""
        parts = [f"{part}_config", *(["encoder_config"] if part == "audio" else [])]
        places = [getattr(self.config, name, None) for name in parts] if part else []
        for place in (*places, self.config):
            for name in names:
                if place is not None and getattr(place, name, None) is not None:
                    return getattr(place, name)
        return default
