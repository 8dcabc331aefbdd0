import numba
import torch


@numba.njit
def embed_add_kernel(ids, table, position, out):
    for b in range(ids.shape[0]):
        for t in range(ids.shape[1]):
            row = table[ids[b, t]]
            for d in range(row.size):
                out[b, t, d] = row[d] + position[0, t, d]


def allocate(*, like, shape):
    return torch.empty(shape, dtype=like.dtype, device=like.device)


@torch.fx.wrap
def embed_add(ids, table, position):
    out = allocate(like=table, shape=(*ids.shape, table.shape[1]))
    embed_add_kernel(ids.numpy(), table.numpy(), position.numpy(), out.numpy())
    return out


def pattern(ids, table, position):
    looked_up = torch.nn.functional.embedding(ids, table)
    return looked_up + position


def replacement_args(ids, table, position):
    return (ids, table, position)


def replacement_func():
    return embed_add
