import torch
from pass_dir.softcap import softcap_50


def pattern(x):
    t = torch.tanh(x / 50.0)
    return t * 50.0


def replacement_args(x):
    return (x,)


def replacement_func():
    return softcap_50
