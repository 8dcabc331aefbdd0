import torch
from pass_dir.window_layernorm import window_layernorm


def pattern(in_0, in_1, in_2, in_3):
    tmp_0 = in_3.contiguous()
    tmp_1 = tmp_0.view(-1, 70, 70, 192)
    tmp_2 = torch.roll(tmp_1, shifts=(3, 3), dims=(1, 2))
    tmp_3 = tmp_2[(slice(None, None, None), slice(None, 64, None), slice(None, 64, None), slice(None, None, None))]
    tmp_4 = tmp_3.contiguous()
    tmp_5 = tmp_4.view(1, 4096, 192)
    tmp_6 = in_2 + tmp_5
    tmp_7 = torch.nn.functional.layer_norm(tmp_6, (192,), in_1, in_0, 1e-05)
    return (tmp_6, tmp_7)


def replacement_args(in_0, in_1, in_2, in_3):
    return (in_0, in_1, in_2, in_3, "70x192")


def replacement_func():
    return window_layernorm
