import math

import numba


@numba.njit(boundscheck=False)
def rms_rows(x, w, o, eps):
    n, d = x.shape
    for i in range(n):
        acc = 0.0
        for j in range(d):
            acc += x[i, j] * x[i, j]
        r = 1.0 / math.sqrt(acc / d + eps)
        for j in range(d):
            o[i, j] = w[j] * (x[i, j] * r)
