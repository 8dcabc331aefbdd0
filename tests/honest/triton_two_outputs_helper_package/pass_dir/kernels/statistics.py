import triton
import triton.language as tl


@triton.jit
def mean_and_rstd(row, mask, n, eps):
    """Two-pass statistics of a row held in registers."""
    mean = tl.sum(row, axis=0) / n
    centred = tl.where(mask, row - mean, 0.0)
    variance = tl.sum(centred * centred, axis=0) / n
    return mean, 1.0 / tl.sqrt(variance + eps)
