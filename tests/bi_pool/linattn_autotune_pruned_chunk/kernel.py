import torch
import triton
import triton.language as tl


def keep_for_load(configs, nargs, **_):
    n = nargs["num_seqs"]
    chunk = 16 if n <= 16 else 64
    return [c for c in configs if c.kwargs["C"] == chunk]


@triton.autotune(
    configs=[triton.Config({"C": c}, num_warps=4) for c in (16, 32, 64)],
    key=["num_seqs", "T"],
    prune_configs_by={"early_config_prune": keep_for_load},
)
@triton.jit
def causal_linear(q, k, v, o, num_seqs, T, H: tl.constexpr, D: tl.constexpr, C: tl.constexpr):
    pid = tl.program_id(0)
    i = tl.arange(0, C)
    d = tl.arange(0, D)
    s = tl.zeros((D, D), tl.float32)
    for t0 in range(0, T, C):
        tok = ((pid // H) * T + t0 + i) * H + pid % H
        at = tok[:, None] * D + d[None, :]
        qc = tl.load(q + at).to(tl.float32)
        kc = tl.load(k + at).to(tl.float32)
        vc = tl.load(v + at).to(tl.float32)
        a = tl.where(i[:, None] >= i[None, :], tl.dot(qc, tl.trans(kc)), 0.0)
        tl.store(o + at, tl.dot(a, vc) + tl.dot(qc, s))
        s += tl.dot(tl.trans(kc), vc)


def run(q, k, v):
    num_seqs, T, H, D = q.shape
    o = torch.empty((num_seqs, T, H, D), dtype=torch.float32, device=q.device)
    causal_linear[(num_seqs * H,)](q, k, v, o, num_seqs, T, H=H, D=D)
    return o
