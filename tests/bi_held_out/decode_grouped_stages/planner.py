from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class DecodePlan:
    kv_parts: int
    block_n: int

    @classmethod
    def build(cls, requests, heads, max_len, device):
        """Cut the cache so that about two waves of programs exist."""
        processors = torch.cuda.get_device_properties(device).multi_processor_count
        wanted = (2 * processors) // max(1, requests * heads)
        most = max(1, max_len // 32)
        parts = 1
        while parts * 2 <= min(wanted, most, 32):
            parts *= 2
        return cls(kv_parts=parts, block_n=32)
