"""Host plan of a decode launch: the smallest chunk for which all chunks still fit one wave."""
from types import SimpleNamespace

import torch


def _ceil(a, b):
    return -(-a // b)


def plan(lens, heads, page, device):
    room = 2 * torch.cuda.get_device_properties(device).multi_processor_count // heads
    pages = [_ceil(n, page) for n in lens]
    low, high = 1, max(pages)
    while low < high:
        mid = (low + high) // 2
        if sum(_ceil(p, mid) for p in pages) > room:
            low = mid + 1
        else:
            high = mid
    request, chunk, first = [], [], [0]
    for i, p in enumerate(pages):
        for c in range(_ceil(p, low)):
            request.append(i)
            chunk.append(c)
        first.append(len(request))

    def as_device(values):
        return torch.tensor(values, dtype=torch.int32, device=device)

    return SimpleNamespace(request=as_device(request), chunk=as_device(chunk), first=as_device(first),
                           chunk_tokens=low * page)
