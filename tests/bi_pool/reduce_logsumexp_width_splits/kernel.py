import torch
import triton
import triton.language as tl


@triton.jit
def _lse_stage_one(x_ptr, ws_ptr, width, scale, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    part = tl.program_id(1)
    c = part * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * width + c, mask=c < width, other=-float("inf")).to(tl.float32) * scale
    m = tl.max(x, axis=0)
    tl.store(ws_ptr + (row * tl.num_programs(1) + part) * 2, m)
    tl.store(ws_ptr + (row * tl.num_programs(1) + part) * 2 + 1, tl.sum(tl.exp(x - m), axis=0))


@triton.jit
def _lse_stage_two(ws_ptr, out_ptr, parts, PARTS_P2: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, PARTS_P2)
    m = tl.load(ws_ptr + (row * parts + i) * 2, mask=i < parts, other=-float("inf"))
    s = tl.load(ws_ptr + (row * parts + i) * 2 + 1, mask=i < parts, other=0.0)
    top = tl.max(m, axis=0)
    tl.store(out_ptr + row, top + tl.log(tl.sum(s * tl.exp(m - top), axis=0)))


def run(logits):
    bsz, width = logits.shape
    block = 2048
    parts = triton.cdiv(width, block)
    ws = torch.empty((bsz, parts, 2), device=logits.device, dtype=torch.float32)
    out = torch.empty((bsz,), device=logits.device, dtype=torch.float32)

    def grid(META):
        return (bsz, triton.cdiv(width, META["BLOCK"]))

    _lse_stage_one[grid](logits, ws, width, 0.5, BLOCK=block)
    _lse_stage_two[(bsz,)](ws, out, parts, PARTS_P2=triton.next_power_of_2(parts))
    return out
