import torch
import triton
import triton.language as tl


@triton.jit
def _swiglu_precise(g_ptr, u_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    g = tl.load(g_ptr + i, mask=i < n, other=0.0).to(tl.float32)
    u = tl.load(u_ptr + i, mask=i < n, other=0.0).to(tl.float32)
    tl.store(y_ptr + i, g * tl.sigmoid(g) * u, mask=i < n)


@triton.jit
def _swiglu_throughput(g_ptr, u_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    g = tl.load(g_ptr + i, mask=i < n, other=0.0)
    u = tl.load(u_ptr + i, mask=i < n, other=0.0)
    act = (g.to(tl.float32) * tl.sigmoid(g.to(tl.float32))).to(tl.float16)
    tl.store(y_ptr + i, (act * u).to(tl.float32), mask=i < n)


KERNELS = {"latency": (_swiglu_precise, 512), "throughput": (_swiglu_throughput, 2048)}


def classify(num_tokens):
    return "latency" if num_tokens <= 20 else "throughput"


def run(gate, up):
    kernel, block = KERNELS[classify(gate.size(0))]
    y = torch.empty(gate.shape, device=gate.device, dtype=torch.float32)
    kernel[(triton.cdiv(gate.numel(), block),)](gate, up, y, gate.numel(), BLOCK=block)
    return y
