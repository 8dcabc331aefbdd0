import torch
import torch.nn.functional as F


@torch.inference_mode()
def run(x):
    return F.avg_pool2d(x, kernel_size=2, stride=2), F.max_pool2d(x, kernel_size=2, stride=2)
