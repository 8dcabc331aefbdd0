import torch
import triton
import triton.language as tl


@triton.jit
def _softmax_persistent(y_ptr, x_ptr, n_rows, n_cols, BLOCK_SIZE: tl.constexpr, num_stages: tl.constexpr):
    row_start = tl.program_id(0)
    row_step = tl.num_programs(0)
    for row_idx in tl.range(row_start, n_rows, row_step, num_stages=num_stages):
        cols = tl.arange(0, BLOCK_SIZE)
        mask = cols < n_cols
        row = tl.load(x_ptr + row_idx * n_cols + cols, mask=mask, other=-float("inf")).to(tl.float32)
        shifted = row - tl.max(row, axis=0)
        num = tl.exp(shifted)
        tl.store(y_ptr + row_idx * n_cols + cols, num / tl.sum(num, axis=0), mask=mask)


class _Device:
    def __init__(self):
        self._sms = {}

    def sms(self, device):
        if device not in self._sms:
            self._sms[device] = torch.cuda.get_device_properties(device).multi_processor_count
        return self._sms[device]


_device = _Device()


def run(x):
    n_cols = x.shape[-1]
    n_rows = x.numel() // n_cols
    y = torch.empty(x.shape, device=x.device, dtype=torch.float32)
    num_programs = min(4 * _device.sms(x.device), n_rows)
    _softmax_persistent[(num_programs, 1, 1)](
        y, x, n_rows, n_cols, BLOCK_SIZE=triton.next_power_of_2(n_cols), num_stages=2, num_warps=4
    )
    return y
