"""Output projection with bias, plain PyTorch."""

import torch


class Projection(torch.nn.Module):
    def __init__(self, weight, bias):
        super().__init__()
        self.weight = weight
        self.bias = bias

    def forward(self, hidden):
        return torch.matmul(hidden, self.weight) + self.bias


def run(hidden, weight, bias):
    with torch.no_grad():
        return Projection(weight, bias)(hidden)
