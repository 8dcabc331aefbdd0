import torch
from pass_dir.softcap import softcap_30


def pattern(x):
    t = torch.tanh(x / 30.0)
    return t * 30.0


def replacement_args(x):
    return (x,)


def replacement_func():
    return softcap_30
