"""Host-side plan of a paged decode: which item reads which pages of which request."""
from dataclasses import dataclass

import numpy as np


@dataclass
class Plan:
    chunk: int
    rows: np.ndarray
    begins: np.ndarray
    indptr: np.ndarray

    def arrays(self):
        return {"rows": self.rows, "begins": self.begins, "indptr": self.indptr}


def _fits(pages, chunk, budget):
    return int(np.ceil(pages / chunk).sum()) <= budget


def plan_chunks(pages, budget):
    low, high = 2, int(pages.max()) + 2
    while low < high:
        mid = (low + high) // 2
        if _fits(pages, mid, budget):
            high = mid
        else:
            low = mid + 1
    counts = np.ceil(pages / low).astype(np.int64)
    rows = np.repeat(np.arange(pages.size), counts)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    begins = (np.arange(rows.size) - indptr[rows]) * low
    return Plan(low, rows, begins, indptr)
