"""Log-softmax with a plan/run interface, like the attention wrappers: plan() once for each batch, then run()."""

import torch
import triton
import triton.language as tl


@triton.jit
def _split_sums(x_ptr, ms_ptr, V, CHUNK, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    split = tl.program_id(1)
    begin = split * CHUNK
    end = tl.minimum(begin + CHUNK, V)
    m = tl.full([BLOCK], -1.0e30, tl.float32)
    s = tl.zeros([BLOCK], tl.float32)
    for i in range(begin, end, BLOCK):
        c = i + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * V + c, mask=c < end, other=-1.0e30).to(tl.float32)
        n = tl.maximum(m, x)
        s = s * tl.exp(m - n) + tl.where(c < end, tl.exp(x - n), 0.0)
        m = n
    peak = tl.max(m, axis=0)
    slot = (row * tl.num_programs(1) + split) * 2
    tl.store(ms_ptr + slot, peak)
    tl.store(ms_ptr + slot + 1, tl.sum(s * tl.exp(m - peak), axis=0))


@triton.jit
def _subtract(x_ptr, ms_ptr, y_ptr, z_ptr, V, SPLITS, SPLITS_POW2: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    k = tl.arange(0, SPLITS_POW2)
    m = tl.load(ms_ptr + (row * SPLITS + k) * 2, mask=k < SPLITS, other=-float("inf"))
    s = tl.load(ms_ptr + (row * SPLITS + k) * 2 + 1, mask=k < SPLITS, other=0.0)
    peak = tl.max(m, axis=0)
    z = tl.sum(s * tl.exp(m - peak), axis=0)
    lse = peak + tl.log(z)
    if tl.program_id(1) == 0:
        tl.store(z_ptr + row, z)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * V + c, mask=c < V, other=0.0).to(tl.float32)
    tl.store(y_ptr + row * V + c, x - lse, mask=c < V)


class LogSoftmaxWrapper:
    def __init__(self, vocab_size, max_splits=32):
        self.vocab_size = vocab_size
        self.max_splits = max_splits
        self.num_splits = None

    def plan(self, rows, device):
        props = torch.cuda.get_device_properties(device)
        self.num_splits = min(self.max_splits, max(1, props.multi_processor_count // rows))
        self.chunk = triton.cdiv(self.vocab_size, self.num_splits)

    def run(self, x):
        rows = x.numel() // self.vocab_size
        sums = torch.empty((rows, self.num_splits, 2), device=x.device, dtype=torch.float32)
        y = torch.empty(x.shape, device=x.device, dtype=torch.float32)
        z = torch.empty(x.shape[:-1], device=x.device, dtype=torch.float32)
        _split_sums[(rows, self.num_splits)](x, sums, self.vocab_size, self.chunk, BLOCK=1024)
        _subtract[(rows, triton.cdiv(self.vocab_size, 4096))](
            x,
            sums,
            y,
            z,
            self.vocab_size,
            self.num_splits,
            SPLITS_POW2=triton.next_power_of_2(self.num_splits),
            BLOCK=4096,
        )
        return y, z


def run(logits):
    bsz, q_len, vocab = logits.shape
    wrapper = LogSoftmaxWrapper(vocab)
    wrapper.plan(bsz * q_len, logits.device)
    return wrapper.run(logits)
