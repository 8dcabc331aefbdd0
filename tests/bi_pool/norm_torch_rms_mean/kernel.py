import torch


class RMSNorm(torch.nn.Module):
    """The reference layer of most decoder-only checkpoints, kept in float32."""

    def __init__(self, eps: float = 1e-6):
        super().__init__()
        self.variance_epsilon = eps

    def forward(self, hidden_states, weight):
        hidden_states = hidden_states.to(torch.float32)
        variance = hidden_states.pow(2).mean(-1, keepdim=True)
        inv = torch.rsqrt(variance + self.variance_epsilon)
        return weight * (hidden_states * inv), inv


_layer = RMSNorm()


@torch.no_grad()
def run(x, weight):
    return _layer(x, weight)
