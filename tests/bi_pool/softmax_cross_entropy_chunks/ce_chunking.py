import triton

MAX_FUSED_SIZE = 65536 // 4


def ce_settings(n_tokens, vocab):
    """Chunk of the vocabulary that one iteration reads, and warps."""
    largest = min(MAX_FUSED_SIZE, triton.next_power_of_2(vocab))
    shrink = 0
    for threshold in (64, 256, 768):
        shrink += n_tokens > threshold
    block_v = largest >> (2 * shrink)
    return block_v, max(4, min(16, block_v // 512))
