import torch
import torch.nn.functional as F

NUM_GROUPS = 8


def nonlinearity(x):
    return F.silu(x)


@torch.inference_mode()
def run(x, weight, bias):
    channels = x.shape[1]
    assert channels % NUM_GROUPS == 0, f"{channels} channels do not divide into {NUM_GROUPS} groups"
    return nonlinearity(F.group_norm(x, NUM_GROUPS, weight, bias, eps=1e-6))
