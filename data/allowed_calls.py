"""The calls that a graph's model.py may make: tensor computation and nothing else. Data for model_check.py.

Names are grouped by where they are spelled. An in-place form (`relu_`) is allowed where the plain one is. What is not
here is refused: loading, saving, compiling, registering, devices' state, processes.
"""

from __future__ import annotations

_POINTWISE = """
abs absolute acos arccos acosh arccosh add addcdiv addcmul angle asin arcsin asinh arcsinh atan arctan atan2 arctan2
atanh arctanh bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor ceil clamp
clamp_max clamp_min clip conj conj_physical copysign cos cosh deg2rad digamma div divide eq erf erfc erfinv exp exp2
expm1 fix float_power floor floor_divide fmax fmin fmod frac frexp gcd ge greater greater_equal gt heaviside hypot i0
isclose isfinite isinf isnan isneginf isposinf isreal lcm ldexp le lerp less less_equal lgamma log log10 log1p log2
logaddexp logaddexp2 logical_and logical_not logical_or logical_xor logit lt maximum minimum mul multiply mvlgamma
nan_to_num ne neg negative nextafter not_equal polygamma positive pow rad2deg real reciprocal relu remainder round rsqrt
rsub sigmoid sgn sign signbit sin sinc sinh softmax log_softmax sqrt square sub subtract tan tanh true_divide trunc
where xlogy imag is_complex is_floating_point is_nonzero is_same_size type_as celu selu prelu threshold
"""

_REDUCTION = """
all amax amin aminmax any argmax argmin argsort bincount bucketize count_nonzero cummax cummin cumprod cumsum diff dist
histc kthvalue logcumsumexp logsumexp max mean median min mode msort nanmean nanmedian nanquantile nansum norm prod
quantile searchsorted sort std std_mean sum topk trapezoid trapz unique unique_consecutive var var_mean equal allclose
renorm
"""

_SHAPE = """
adjoint as_strided atleast_1d atleast_2d atleast_3d broadcast_tensors broadcast_to cat chunk column_stack concat
concatenate contiguous detach diag diag_embed diagflat diagonal dsplit dstack expand expand_as flatten flip fliplr
flipud gather hsplit hstack index_add index_copy index_fill index_put index_reduce index_select masked_fill
masked_scatter masked_select meshgrid moveaxis movedim narrow narrow_copy nonzero numel permute put ravel repeat
repeat_interleave reshape reshape_as resolve_conj resolve_neg roll rot90 row_stack scatter scatter_add
scatter_reduce select select_scatter slice_scatter diagonal_scatter split split_with_sizes
squeeze stack swapaxes swapdims t take
take_along_dim tensor_split tile transpose tril tril_indices triu triu_indices unbind unflatten unfold unsqueeze
view view_as view_as_complex view_as_real vsplit vstack vander block_diag cartesian_prod combinations clone
"""

_LINEAR_ALGEBRA = """
addbmm addmm addmv addr baddbmm bilinear bmm cdist chain_matmul cholesky cholesky_solve corrcoef cov cross det dot
einsum ger inner inverse kron linear logdet matmul matrix_exp matrix_power mm multi_dot mv outer pinverse qr slogdet
svd tensordot trace vdot
"""

_FACTORY = """
arange as_tensor asarray complex empty empty_like empty_permuted empty_strided eye full full_like linspace logspace
ones ones_like polar range scalar_tensor tensor zeros zeros_like hann_window hamming_window bartlett_window
blackman_window kaiser_window
"""

_NEURAL = """
adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d
affine_grid alpha_dropout avg_pool1d avg_pool2d avg_pool3d batch_norm binary_cross_entropy
binary_cross_entropy_with_logits celu channel_shuffle conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d
conv_transpose3d convolution cosine_embedding_loss cosine_similarity cross_entropy ctc_loss dropout dropout1d dropout2d
dropout3d elu embedding embedding_bag feature_dropout fold gelu glu grid_sample grid_sampler group_norm hardshrink
hardsigmoid hardswish hardtanh hinge_embedding_loss huber_loss instance_norm interpolate kl_div l1_loss layer_norm
leaky_relu local_response_norm log_softmax logsigmoid lp_pool1d lp_pool2d lstm gru rnn_tanh rnn_relu lstm_cell gru_cell
margin_ranking_loss max_pool1d max_pool2d max_pool3d max_pool1d_with_indices max_pool2d_with_indices
max_pool3d_with_indices max_unpool1d max_unpool2d max_unpool3d mish mse_loss
native_batch_norm native_group_norm native_layer_norm native_dropout nll_loss normalize one_hot pad
pairwise_distance pdist pixel_shuffle pixel_unshuffle prelu relu relu6 rms_norm rrelu scaled_dot_product_attention selu
sigmoid silu smooth_l1_loss soft_margin_loss softmax softmin softplus softshrink softsign tanh tanhshrink threshold
triplet_margin_loss unfold upsample upsample_bilinear upsample_nearest upsample_nearest1d upsample_nearest2d
upsample_nearest3d upsample_bilinear2d upsample_bicubic2d upsample_linear1d upsample_trilinear3d col2im im2col
reflection_pad1d reflection_pad2d replication_pad1d replication_pad2d constant_pad_nd
"""

_TORCH_ONLY = """
stft istft result_type promote_types can_cast broadcast_shapes finfo iinfo Size sym_float sym_int sym_max sym_min
sym_not sym_sum sym_ite sym_sqrt is_tensor is_grad_enabled sparse_coo_tensor
_weight_norm _assert _assert_async _assert_scalar _check _check_is_size _check_value _check_index _shape_as_tensor
_set_grad_enabled set_grad_enabled fake_quantize_per_tensor_affine quantize_per_tensor dequantize
_native_multi_head_attention
"""

_METHODS_ONLY = """
bfloat16 bool byte char cdouble cfloat cpu cuda dim double element_size float get_device half int is_contiguous long
ndimension nelement new_empty new_full new_ones new_tensor new_zeros requires_grad short size storage_offset stride
sum_to_size to type type_as fill fill_diagonal zero copy detach_ index_put_ masked_fill_ scatter_ squeeze_ unsqueeze_
t_ transpose_ is_signed is_conj is_inference has_names
"""


def _names(*groups: str) -> frozenset[str]:
    return frozenset(word for group in groups for word in group.split())


_COMPUTE = _names(_POINTWISE, _REDUCTION, _SHAPE, _LINEAR_ALGEBRA, _NEURAL)

METHODS = _names(_POINTWISE, _REDUCTION, _SHAPE, _LINEAR_ALGEBRA, _METHODS_ONLY)
"""Methods of a tensor."""

_DUNDERS = """
abs add and bool contains div eq floordiv ge getitem gt iadd iand idiv ifloordiv ilshift imul invert ior ipow irshift
isub itruediv ixor le len lshift lt matmul mod mul ne neg or pos pow radd rand rdiv rfloordiv rmatmul rmod rmul ror
rpow rshift rsub rtruediv rxor setitem sub truediv xor
"""

ARITHMETIC_DUNDERS = frozenset(f"__{name}__" for name in _names(_DUNDERS))
"""Double-underscore methods that Dynamo writes as calls; no other is allowed."""

FUNCTIONS: dict[str, frozenset[str]] = {
    "torch": _COMPUTE | _names(_FACTORY, _TORCH_ONLY),
    "torch.nn.functional": _names(_NEURAL, _SHAPE, "linear bilinear multi_head_attention_forward"),
    "torch.functional": _names(_SHAPE, _LINEAR_ALGEBRA, "norm stft istft unique"),
    "torch.Tensor": METHODS,
    "torch.autograd.function": _names("FunctionCtx"),
    "torch._C": _names("_log_api_usage_once _set_grad_enabled _get_tracing_state"),
    "torch._C._nn": _COMPUTE,
    "torch._C._functorch": _names("_add_batch_dim _remove_batch_dim _vmap_increment_nesting _vmap_decrement_nesting"),
    "torch._functorch.predispatch": _names(
        "_add_batch_dim _remove_batch_dim _vmap_increment_nesting _vmap_decrement_nesting lazy_load_decompositions"
    ),
    "torch._functorch.vmap": _names("lazy_load_decompositions"),
    "torch.amp.autocast_mode": _names("_enter_autocast _exit_autocast"),
    "torch.ops.aten": _COMPUTE
    | METHODS
    | _names(
        _FACTORY, "index slice _to_copy _softmax _log_softmax lift_fresh_copy copy sym_size sym_numel _assert_scalar"
    ),
}
"""Dotted prefix -> functions spelled under it."""

FUNCTION_PREFIXES: dict[str, str] = {
    "torch.fft": "",
    "torch.special": "",
    "torch.linalg": "",
    "torch._C._fft": "fft_",
    "torch._C._special": "special_",
    "torch._C._linalg": "linalg_",
}
"""Namespaces of pure computation: any public name with this start."""

RANDOM = _names(
    """
    rand randn randint rand_like randn_like randint_like randperm bernoulli multinomial normal poisson binomial uniform
    random exponential geometric cauchy log_normal rrelu gumbel_softmax alpha_dropout feature_dropout
    feature_alpha_dropout native_dropout manual_seed seed initial_seed get_rng_state set_rng_state
    """
)
"""Refused with their own reason: the outputs have no expected value."""

READS_VALUES = _names("item tolist _local_scalar_dense numpy")
"""Refused with their own reason: a Python value made of a tensor's content."""

TENSOR_ATTRIBUTES = _names(
    "shape dtype device layout ndim T mT H mH real imag is_cuda requires_grad data itemsize nbytes"
)

TORCH_CONSTANTS = _names(
    """
    float32 float float64 double float16 half bfloat16 complex32 complex64 complex128 cfloat cdouble chalf uint8 uint16
    uint32 uint64 int8 int16 short int32 int int64 long bool float8_e4m3fn float8_e5m2 strided preserve_format
    contiguous_format channels_last channels_last_3d inf nan pi e
    """
)
"""torch.<name> as a value."""
