"""The batch-invariance family of an operator sequence: which operator decides how a row depends on its batch. No torch.

The family is a key for contracts that are stated elsewhere. It is decided by the operator of the sequence that comes
first in FAMILIES: a convolution followed by a softmax is a convolution. A sequence with an operator that no family
lists has none, so that no contract is claimed for it.
"""

from __future__ import annotations

from collections.abc import Sequence

from data.sequence_overlap import NO_COMPUTE, normalised_sequence

ATTENTION, MATMUL, SOFTMAX, NORMALIZATION, REDUCTION = "attention", "matmul", "softmax", "normalization", "reduction"
ELEMENTWISE, DATA_MOVEMENT = "elementwise", "data_movement"

FAMILIES: dict[str, frozenset[str]] = {
    family: frozenset(names.split())
    for family, names in {
        # rows meet in a sum over keys
        ATTENTION: "scaled_dot_product_attention multi_head_attention_forward",
        # a step reads the step before it
        "recurrent": "lstm gru rnn_tanh rnn_relu lstm_cell gru_cell",
        # sums over channels and a window; batch is the leading axis
        "convolution": """
            conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d convolution unfold fold
            im2col col2im
        """,
        # sums over one axis of two operands; how the sum is split often depends on the number of rows
        MATMUL: """
            matmul linear addmm addmv addr addbmm baddbmm mv dot vdot inner outer ger einsum bilinear tensordot
            chain_matmul multi_dot kron cdist matrix_power
        """,
        "fft": """
            fft ifft rfft irfft fft2 ifft2 rfft2 irfft2 fftn ifftn rfftn irfftn hfft ihfft stft istft fft_fft fft_ifft
            fft_rfft fft_irfft fft_fft2 fft_ifft2 fft_rfft2 fft_irfft2 fft_fftn fft_ifftn fft_rfftn fft_irfftn
        """,
        SOFTMAX: "softmax log_softmax softmin logsumexp",
        # statistics of a row, then the row scaled by them
        NORMALIZATION: """
            layer_norm group_norm instance_norm rms_norm native_layer_norm native_group_norm normalize
            local_response_norm weight_norm cosine_similarity
        """,
        # each element needs the ones before it
        "scan": "cumsum cumprod cummax cummin logcumsumexp",
        "sort": """
            sort argsort topk kthvalue median nanmedian mode msort unique unique_consecutive searchsorted bucketize
            quantile nanquantile
        """,
        REDUCTION: """
            sum nansum mean nanmean prod amax amin aminmax max min argmax argmin all any norm std var std_mean var_mean
            count_nonzero dist trace linalg_norm vector_norm linalg_vector_norm cross_entropy nll_loss mse_loss l1_loss
            smooth_l1_loss huber_loss kl_div binary_cross_entropy binary_cross_entropy_with_logits bincount
        """,
        # windows of one row
        "pooling": """
            avg_pool1d avg_pool2d avg_pool3d max_pool1d max_pool2d max_pool3d lp_pool1d lp_pool2d adaptive_avg_pool1d
            adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d
            max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices boolean_dispatch
        """,
        "resampling": """
            interpolate upsample upsample_nearest upsample_bilinear upsample_nearest1d upsample_nearest2d
            upsample_nearest3d upsample_linear1d upsample_bilinear2d upsample_bicubic2d upsample_trilinear3d grid_sample
            grid_sampler affine_grid
        """,
        # several writes may meet in one place
        "scatter": """
            scatter scatter_add scatter_reduce index_add index_copy index_fill index_reduce index_put masked_scatter
            put slice_scatter select_scatter diagonal_scatter
        """,
        # rows picked by an index
        "embedding": "embedding embedding_bag gather take take_along_dim index_select one_hot",
        # an element of the result needs one element of each operand; batch_norm in evaluation mode is one of these
        ELEMENTWISE: """
            abs acos acosh add addcdiv addcmul angle asin asinh atan atan2 atanh and or xor invert bitwise_left_shift
            bitwise_right_shift lshift rshift batch_norm native_batch_norm ceil celu clamp copysign cos cosh deg2rad
            digamma div elu eq erf erfc erfinv exp exp2 expm1 floor floordiv frac ge gelu glu gt hardshrink hardsigmoid
            hardswish hardtanh isclose isfinite isinf isnan ldexp le leaky_relu lerp lgamma log log10 log1p log2
            logaddexp logaddexp2 logit logsigmoid lt masked_fill maximum minimum mish mod mul nan_to_num ne neg polar
            pos pow prelu rad2deg reciprocal relu relu6 round rsqrt selu sigmoid sign sgn signbit silu sin sinc sinh
            softplus softshrink softsign sqrt square sub tan tanh tanhshrink threshold trunc where xlogy fmax fmin
            heaviside hypot fill zero copy complex real imag conj view_as_complex view_as_real sym_float sym_int
        """,
        # nothing is computed
        DATA_MOVEMENT: """
            view permute transpose squeeze unsqueeze expand expand_as broadcast_to broadcast_tensors cat stack hstack
            vstack dstack split chunk unbind tensor_split split_with_sizes select setitem roll flip pad
            constant_pad_nd reflection_pad1d reflection_pad2d replication_pad1d replication_pad2d repeat
            repeat_interleave tile movedim adjoint diagonal diag diag_embed tril triu as_strided rot90 meshgrid
            pixel_shuffle pixel_unshuffle channel_shuffle arange zeros ones full empty zeros_like ones_like full_like
            empty_like new_zeros new_ones new_full new_empty new_tensor tensor as_tensor scalar_tensor eye linspace
            tril_indices triu_indices
        """,
    }.items()
}
"""Family -> its operators, in normalised spelling; the first family that a sequence touches is its family."""

_FAMILY_OF = {operator: family for family, operators in FAMILIES.items() for operator in operators}
_RANK = {family: rank for rank, family in enumerate(FAMILIES)}
_ROOTS = ("rsqrt", "sqrt", "pow")
_STATISTICS = ("mean", "var", "var_mean", "sum")
_ROOTED_STATISTICS = ("std", "std_mean", "norm", "linalg_norm", "vector_norm", "linalg_vector_norm")


def family_of(operators: Sequence[str]) -> str | None:
    """The family of a sequence of bare operator names; None if it is empty or an operator is in no family.

    Some families may be spelled out: attention as matmul, softmax, matmul; a softmax as exp, sum, div; a normalisation
    as a statistic, its root, and a product or quotient.
    """
    names = [name for name in normalised_sequence(operators) if name not in NO_COMPUTE]
    if any(name not in _FAMILY_OF for name in names):
        return None
    families = [_FAMILY_OF[name] for name in names]
    if not families:
        return DATA_MOVEMENT if operators else None
    if _in_order(families, (MATMUL, SOFTMAX, MATMUL)):
        return ATTENTION
    first = min(families, key=_RANK.__getitem__)
    if first == REDUCTION and _in_order(names, ("exp", "sum", "div")):
        return SOFTMAX
    return NORMALIZATION if first == REDUCTION and _is_normalization(names) else first


def _is_normalization(names: Sequence[str]) -> bool:
    spelled_out: list[tuple[str, ...]] = [(statistic, root) for statistic in _STATISTICS for root in _ROOTS]
    spelled_out += [(statistic,) for statistic in _ROOTED_STATISTICS]
    return any(_in_order(names, (*start, end)) for start in spelled_out for end in ("mul", "div"))


def _in_order(names: Sequence[str], wanted: Sequence[str]) -> bool:
    """Whether the wanted names occur in this order, with anything between."""
    remaining = iter(names)
    return all(want in remaining for want in wanted)
