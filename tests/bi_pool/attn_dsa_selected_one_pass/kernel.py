import torch
import triton
import triton.language as tl


@triton.jit
def selected_attention(q, kv, ids, o, n_sel, scale, H: tl.constexpr, D: tl.constexpr, CHUNK: tl.constexpr,
                       SPLITS: tl.constexpr):
    tok = tl.program_id(0)
    h = tl.arange(0, 16)
    d = tl.arange(0, D)
    q_tile = tl.load(q + (tok * H + h[:, None]) * D + d[None, :], mask=h[:, None] < H, other=0.0)
    m_all = tl.full((16,), -1e30, tl.float32)
    l_all = tl.zeros((16,), tl.float32)
    o_all = tl.zeros((16, D), tl.float32)
    # the splits stay in one program: independent softmax states, merged in order
    for sp in tl.static_range(SPLITS):
        m = tl.full((16,), -1e30, tl.float32)
        l = tl.zeros((16,), tl.float32)
        acc = tl.zeros((16, D), tl.float32)
        for j0 in range(sp * (n_sel // SPLITS), (sp + 1) * (n_sel // SPLITS), CHUNK):
            pos = tl.load(ids + tok * n_sel + j0 + tl.arange(0, CHUNK))
            rows = tl.load(kv + pos[:, None] * D + d[None, :])
            x = tl.dot(q_tile, tl.trans(rows)) * scale
            m1 = tl.maximum(m, tl.max(x, 1))
            p = tl.exp(x - m1[:, None])
            f = tl.exp(m - m1)
            acc = acc * f[:, None] + tl.dot(p.to(rows.dtype), rows)
            l = l * f + tl.sum(p, 1)
            m = m1
        top = tl.maximum(m_all, m)
        fa = tl.exp(m_all - top)
        fb = tl.exp(m - top)
        o_all = o_all * fa[:, None] + acc * fb[:, None]
        l_all = l_all * fa + l * fb
        m_all = top
    tl.store(o + (tok * H + h[:, None]) * D + d[None, :], o_all / l_all[:, None], mask=h[:, None] < H)


def run(q, kv, ids):
    num_tokens, H, D = q.shape
    topk = ids.shape[1]
    splits = 2 if topk >= 128 else 1
    o = torch.empty((num_tokens, H, D), dtype=torch.float32, device=q.device)
    selected_attention[(num_tokens,)](q, kv, ids, o, topk, D**-0.5, H=H, D=D, CHUNK=32, SPLITS=splits)
    return o
