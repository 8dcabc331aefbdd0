"""Chunk length of the delta rule."""

MAX_CHUNK = 64
MIN_CHUNK = 16


def chunk_size(num_seqs: int, seq_len: int) -> int:
    """Few sequences: short chunks shorten the triangular solve. Many: long chunks feed the tensor cores."""
    size = MIN_CHUNK
    while size < MAX_CHUNK and size < seq_len and num_seqs > size // 2:
        size *= 2
    return size
