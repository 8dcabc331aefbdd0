import torch
import triton
import triton.language as tl


@triton.heuristics(values={"TILE": lambda a: 2048 if a["ROWS"] < 8 * 12 else (512 if a["ROWS"] < 8 * 72 else 128)})
@triton.jit
def masked_softmax(S, LEN, P, ROWS, HEADS, N, TILE: tl.constexpr):
    r = tl.program_id(0)
    valid = tl.load(LEN + r // HEADS)
    S += r * N
    P += r * N
    top = -float("inf")
    for i in range(0, valid, TILE):
        c = i + tl.arange(0, TILE)
        top = tl.maximum(top, tl.max(tl.load(S + c, mask=c < valid, other=-float("inf")).to(tl.float32), axis=0))
    acc = tl.zeros([TILE], dtype=tl.float32)
    for i in range(0, valid, TILE):
        c = i + tl.arange(0, TILE)
        s = tl.load(S + c, mask=c < valid, other=-float("inf")).to(tl.float32)
        acc += tl.exp(s - top)
    inv = 1.0 / tl.sum(acc, axis=0)
    for i in range(0, N, TILE):
        c = i + tl.arange(0, TILE)
        s = tl.load(S + c, mask=c < valid, other=-float("inf")).to(tl.float32)
        tl.store(P + c, tl.exp(s - top) * inv, mask=c < N)


def run(scores, lengths):
    b, h, n = scores.shape
    probs = torch.empty((b, h, n), device=scores.device, dtype=torch.float32)
    masked_softmax[(b * h,)](scores, lengths, probs, b * h, h, n)
    return probs
