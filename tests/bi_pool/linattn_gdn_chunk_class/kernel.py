import torch
import triton
import triton.language as tl


@triton.jit
def inverse_kernel(k, g, beta, inv_ptr, T, H: tl.constexpr, D: tl.constexpr, C: tl.constexpr):
    """(I + A)^-1 of every chunk, A strictly lower triangular."""
    b, h, c = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    i = tl.arange(0, C)
    d = tl.arange(0, D)
    tok = (b * T + c * C + i) * H + h
    kc = tl.load(k + tok[:, None] * D + d[None, :]).to(tl.float32) * (D ** -0.5)
    cum = tl.cumsum(-0.1 * tl.load(g + tok), 0)
    low = i[:, None] > i[None, :]
    A = tl.dot(kc, tl.trans(kc)) * tl.exp(tl.where(low, cum[:, None] - cum[None, :], 0.0)) * tl.load(beta + tok)[:, None]
    X = tl.where(low, -A, 0.0)
    for r in range(1, C):
        row = tl.sum(tl.where((i == r)[:, None], X, 0.0), 0)
        row += tl.sum(row[:, None] * X, 0)
        X = tl.where((i == r)[:, None] & low, row[None, :], X)
    X += tl.where(i[:, None] == i[None, :], 1.0, 0.0)
    p = ((b * H + h) * tl.num_programs(2) + c) * C * C
    tl.store(inv_ptr + p + i[:, None] * C + i[None, :], X)


@triton.jit
def scan_kernel(q, k, v, g, beta, inv_ptr, o, T, num_chunks, H: tl.constexpr, D: tl.constexpr, C: tl.constexpr):
    b, h = tl.program_id(0), tl.program_id(1)
    i = tl.arange(0, C)
    d = tl.arange(0, D)
    low = i[:, None] >= i[None, :]
    S = tl.zeros((D, D), tl.float32)
    for c in range(num_chunks):
        tok = (b * T + c * C + i) * H + h
        at = tok[:, None] * D + d[None, :]
        kc = tl.load(k + at).to(tl.float32) * (D ** -0.5)
        lg = -0.1 * tl.load(g + tok)
        cum = tl.cumsum(lg, 0)
        end = tl.sum(lg, 0)
        inv = tl.load(inv_ptr + ((b * H + h) * num_chunks + c) * C * C + i[:, None] * C + i[None, :])
        target = tl.load(v + at).to(tl.float32) - tl.dot(kc * tl.exp(cum)[:, None], S)
        u = tl.dot(inv, target * tl.load(beta + tok)[:, None])
        qc = tl.load(q + at).to(tl.float32)
        a = tl.dot(qc, tl.trans(kc)) * tl.exp(tl.where(low, cum[:, None] - cum[None, :], -1e9))
        tl.store(o + at, tl.dot(qc * tl.exp(cum)[:, None], S) + tl.dot(a, u))
        S = S * tl.exp(end) + tl.dot(tl.trans(kc * tl.exp(end - cum)[:, None]), u)


class GatedDeltaNet:
    chunk = 16

    def forward(self, q, k, v, g, beta):
        B, T, H, D = q.shape
        C = self.chunk
        n = T // C
        scratch = torch.empty((B, H, n, C, C), dtype=torch.float32, device=q.device)
        inverse_kernel[(B, H, n)](k, g, beta, scratch, T, H=H, D=D, C=C)
        o = torch.empty((B, T, H, D), dtype=torch.float32, device=q.device)
        scan_kernel[(B, H)](q, k, v, g, beta, scratch, o, T, n, H=H, D=D, C=C)
        return o


def run(*inputs):
    return GatedDeltaNet().forward(*inputs)
