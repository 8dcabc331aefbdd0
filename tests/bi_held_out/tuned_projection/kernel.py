"""Projection of 16 query tokens a request, configurations measured the first time a problem size is met."""
import torch
import triton
import triton.language as tl


def _candidates():
    found = []
    for block_k, split in ((64, 1), (64, 8), (128, 4)):
        found.append(
            triton.Config(
                {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": block_k, "SPLIT": split},
                num_warps=4,
                num_stages=3,
                pre_hook=lambda kw: kw["out"].zero_(),
            )
        )
    return found


@triton.autotune(configs=_candidates(), key=["rows", "n", "k"])
@triton.jit
def projection(x, w, out, rows, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
               SPLIT: tl.constexpr):
    pid = tl.program_id(0)
    share = tl.program_id(1)
    per_row = tl.cdiv(n, BLOCK_N)
    rm = (pid // per_row) * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = (pid % per_row) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(share, tl.cdiv(k, BLOCK_K), SPLIT):
        rk = step * BLOCK_K + tl.arange(0, BLOCK_K)
        xa = tl.load(x + rm[:, None] * k + rk[None, :], mask=(rm < rows)[:, None] & (rk < k)[None, :], other=0.0)
        wb = tl.load(w + rk[:, None] * n + rn[None, :], mask=(rk < k)[:, None] & (rn < n)[None, :], other=0.0)
        acc = tl.dot(xa, wb, acc)
    ok = (rm < rows)[:, None] & (rn < n)[None, :]
    if SPLIT == 1:
        tl.store(out + rm[:, None] * n + rn[None, :], acc, mask=ok)
    else:
        tl.atomic_add(out + rm[:, None] * n + rn[None, :], acc, mask=ok)


def run(x, w):
    tokens = x.reshape(-1, x.shape[-1])
    rows, k = tokens.shape
    n = w.shape[1]
    out = torch.zeros((rows, n), dtype=torch.float32, device=x.device)

    def grid(meta):
        return triton.cdiv(rows, meta["BLOCK_M"]) * triton.cdiv(n, meta["BLOCK_N"]), meta["SPLIT"]

    projection[grid](tokens, w, out, rows, n, k)
    return out.view(x.shape[0], x.shape[1], n)
