"""Softmax over a vocabulary: slices of a row are reduced apart, then joined; the scratch grows with the requests."""
import torch
import triton
import triton.language as tl

SLICE = 4096


@triton.jit
def slice_stats(X, TOP, MASS, vocab, splits, SLICE: tl.constexpr):
    row = tl.program_id(0)
    s = tl.program_id(1)
    i = s * SLICE + tl.arange(0, SLICE)
    x = tl.load(X + row * vocab + i, mask=i < vocab, other=-float("inf")).to(tl.float32)
    top = tl.max(x, 0)
    tl.store(TOP + row * splits + s, top)
    tl.store(MASS + row * splits + s, tl.sum(tl.exp(x - top), 0))


@triton.jit
def write_probs(X, Y, TOP, MASS, vocab, splits, SLICE: tl.constexpr, WIDE: tl.constexpr):
    row = tl.program_id(0)
    i = tl.program_id(1) * SLICE + tl.arange(0, SLICE)
    j = tl.arange(0, WIDE)
    tops = tl.load(TOP + row * splits + j, mask=j < splits, other=-float("inf"))
    mass = tl.load(MASS + row * splits + j, mask=j < splits, other=0.0)
    top = tl.max(tops, 0)
    total = tl.sum(mass * tl.exp(tops - top), 0)
    x = tl.load(X + row * vocab + i, mask=i < vocab, other=-float("inf")).to(tl.float32)
    tl.store(Y + row * vocab + i, tl.exp(x - top) / total, mask=i < vocab)


class Scratch:
    def __init__(self):
        self.buffer = None

    def take(self, count, device):
        """At least count floats; kept between calls, never shrunk."""
        if self.buffer is None or self.buffer.numel() < count or self.buffer.device != device:
            size = 1 << max(10, (count - 1).bit_length())
            self.buffer = torch.empty(size, dtype=torch.float32, device=device)
        return self.buffer


_scratch = Scratch()


def run(logits):
    batch_size, vocab = logits.shape
    logits = logits.contiguous()
    splits = triton.cdiv(vocab, SLICE)
    half = triton.cdiv(batch_size * splits, 64) * 64  # keeps both halves aligned
    space = _scratch.take(2 * half, logits.device)
    top, mass = space[:half], space[half : 2 * half]
    probs = torch.empty((batch_size, vocab), dtype=torch.float32, device=logits.device)
    grid = (batch_size, splits)
    slice_stats[grid](logits, top, mass, vocab, splits, SLICE=SLICE, num_warps=8)
    write_probs[grid](logits, probs, top, mass, vocab, splits, SLICE=SLICE, WIDE=triton.next_power_of_2(splits),
                      num_warps=8)
    return probs
