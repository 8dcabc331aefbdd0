"""The names that a pass may use: allow-lists of modules, functions and builtins.

Data only. source_rules.py says how the lists are applied. A name that is not here is refused, so each list errs on the
side of what an honest Triton, CUDA or numba pass needs; a deny-list is kept only where an allow-list is impossible
(methods of objects whose type the syntax tree does not tell).
"""

from __future__ import annotations


def words(text: str) -> frozenset[str]:
    """The set of the words of a text."""
    return frozenset(text.split())


IMPORTABLE_MODULES = words(
    """
    __future__ dataclasses enum functools math numba numba.cuda numba.types numpy pass_dir torch torch.cuda torch.fx
    torch.nn torch.nn.functional torch.utils torch.utils.cpp_extension triton triton.language triton.language.extra
    triton.language.extra.libdevice triton.language.extra.cuda triton.language.extra.cuda.libdevice
    triton.language.math triton.tools triton.tools.tensor_descriptor typing collections collections.abc
    """
)
"""Modules that an import statement may name; pass_dir.<file> of the folder itself is added by the composer."""

MODULE_NAMES = IMPORTABLE_MODULES | words(
    """
    torch.backends torch.backends.cuda torch.linalg torch.special torch.fft torch.ops torch.ops.aten torch.functional
    torch._C torch._C._nn torch._C._fft torch.autograd torch.version triton.runtime triton.runtime.driver
    triton.runtime.driver.active triton.runtime.driver.active.utils numba.np numba.core numpy.lib
    numpy.lib.stride_tricks numpy.linalg numpy.random
    """
)
"""Dotted names that are modules: used by attribute only, never handed around as objects."""

TORCH_DTYPES = words(
    """
    float float16 float32 float64 double half bfloat16 int int8 int16 int32 int64 long short uint8 uint16 uint32
    uint64 bool complex32 complex64 complex128 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz
    """
)

TORCH_ALLOWED = words(
    """
    empty empty_like empty_strided zeros zeros_like ones ones_like full full_like from_numpy

    Tensor dtype device Size layout memory_format strided contiguous_format channels_last channels_last_3d
    preserve_format finfo iinfo inf nan pi is_tensor is_floating_point is_complex numel

    as_strided reshape view_as_real view_as_complex permute transpose swapaxes moveaxis movedim squeeze unsqueeze
    flatten ravel unflatten t narrow select chunk split tensor_split unbind broadcast_to broadcast_shapes

    no_grad fx.wrap get_default_dtype get_num_threads promote_types result_type can_cast
    cuda.current_stream cuda.current_device cuda.device cuda.device_count cuda.get_device_properties
    cuda.get_device_capability cuda.get_device_name cuda.is_available cuda.synchronize
    version.cuda version.hip utils.cpp_extension.load_inline
    """
)
"""torch.<name> that may appear outside `pattern`: allocation; types and facts; views; queries and load_inline."""

TORCH_DENIED_IN_PATTERN = words(
    """
    compile compiler jit _dynamo _inductor _export export load save hub utils classes library autograd distributed
    multiprocessing overrides storage profiler package onnx futures testing func cuda cpu mps xpu backends random
    manual_seed seed set_default_dtype set_num_threads use_deterministic_algorithms
    """
)
"""First part of torch.<part>... that `pattern` may not use either: it describes a graph, it does not build one."""

TORCH_PATTERN_PRIVATE = ("torch._C._nn", "torch._C._fft", "torch._C._linalg", "torch._C._log_api_usage_once",
                         "torch._weight_norm", "torch._functorch.predispatch", "torch._assert", "torch._check")
"""Private torch names that graphs really hold, allowed in `pattern`."""

NUMPY_DTYPES = words(
    """
    float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool_ intp uintp single double half
    complex64 complex128
    """
)

NUMPY_ALLOWED = NUMPY_DTYPES | words(
    """
    ndarray dtype finfo iinfo inf nan pi e newaxis empty empty_like zeros zeros_like ones ones_like full full_like
    asarray ascontiguousarray array reshape ravel transpose squeeze expand_dims moveaxis swapaxes broadcast_to
    broadcast_shapes atleast_1d atleast_2d shape ndim size require errstate floating integer generic number
    """
)
"""numpy.<name> outside @njit: views, dtypes, allocation, casts and contiguous copies."""

NUMPY_DENIED_IN_NJIT = words(
    """
    dot vdot inner outer matmul matvec vecmat einsum tensordot kron convolve correlate linalg fft random lib core
    testing save load fromfile memmap ctypeslib f2py
    """
)
"""numpy.<name> inside @njit: numba hands these to BLAS or LAPACK, which is not the candidate's kernel."""

NUMBA_JIT = words(
    """
    numba.njit numba.jit numba.vectorize numba.guvectorize numba.stencil numba.cuda.jit
    """
)
TRITON_JIT = frozenset({"triton.jit"})
LOAD_INLINE = "torch.utils.cpp_extension.load_inline"

NUMBA_ALLOWED = words(
    """
    njit jit vectorize guvectorize stencil prange literal_unroll pndindex get_num_threads
    get_thread_id typeof types.Array types.Tuple types.UniTuple types.void types.none types.Omitted cuda.jit cuda.grid
    cuda.gridsize cuda.threadIdx cuda.blockIdx cuda.blockDim cuda.gridDim cuda.syncthreads cuda.syncwarp
    cuda.shared.array cuda.local.array cuda.as_cuda_array cuda.external_stream cuda.warpsize cuda.laneid
    cuda.atomic.add cuda.atomic.max cuda.atomic.min cuda.shfl_sync cuda.shfl_down_sync cuda.shfl_up_sync
    cuda.shfl_xor_sync cuda.fma cuda.libdevice
    """
)
NUMBA_SCALARS = words(
    """
    float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 intp uintp boolean bool_ void complex64
    complex128 f4 f8 i1 i2 i4 i8 u1 u2 u4 u8 b1 int_ uint none
    """
)
NUMBA_DENIED_KEYWORDS = frozenset({"forceobj", "looplift", "pipeline_class", "locals", "cache", "target_backend"})
"""Keywords of numba.jit that leave compiled code (object mode) or cross evaluations (a disk cache)."""

TRITON_ALLOWED = words(
    """
    jit autotune heuristics Config cdiv next_power_of_2 set_allocator constexpr_function
    runtime.driver.active.utils.get_device_properties tools.tensor_descriptor.TensorDescriptor
    """
)
TRITON_LANGUAGE_SUBMODULES = frozenset({"math", "extra"})
TRITON_LANGUAGE_DENIED = frozenset({"core", "semantic", "standard", "tensor_descriptor", "target_info"})

OTHER_ALLOWED: dict[str, frozenset[str] | None] = {
    "math": None,
    "__future__": None,
    "functools": frozenset({"wraps", "partial", "reduce"}),
    "dataclasses": frozenset({"dataclass", "field", "replace", "astuple", "fields", "FrozenInstanceError"}),
    "enum": frozenset({"Enum", "IntEnum", "StrEnum", "Flag", "IntFlag", "auto", "unique"}),
    "typing": words(
    """
    Any Callable ClassVar Dict Final Generic Iterable Iterator List Literal Mapping NamedTuple Optional Protocol
    Sequence Set Tuple Type TypeAlias TypeVar Union TYPE_CHECKING overload cast no_type_check
    """
),
    "collections": frozenset({"namedtuple", "OrderedDict", "defaultdict", "abc", "deque", "Counter"}),
    "collections.abc": words(
    """
    Callable Iterable Iterator Mapping Sequence Collection Hashable Sized
    """
),
}
"""Module -> names of it that may be used; None is any public name. (functools.lru_cache would keep results.)"""

BUILTINS_ALLOWED = words(
    """
    abs all any bool bytes callable classmethod complex dict divmod enumerate filter float format frozenset hasattr
    int isinstance issubclass iter len list map max min next object pow print property range repr reversed round set
    slice sorted staticmethod str sum super tuple type zip None True False Ellipsis NotImplemented __name__
    ArithmeticError AssertionError AttributeError BaseException Exception IndexError KeyError LookupError
    NotImplementedError OverflowError RuntimeError StopIteration TypeError ValueError ZeroDivisionError Warning
    UserWarning __debug__
    """
)

NAMES_DENIED = words(
    """
    getattr setattr delattr eval exec compile open __import__ globals locals vars dir id input breakpoint memoryview
    help exit quit __builtins__ __loader__ __spec__ __file__
    """
)
"""Builtins refused wherever the name is read, even if the file binds it too."""

DUNDER_METHODS_ALLOWED = words(
    """
    __init__ __call__ __repr__ __str__ __len__ __post_init__ __hash__ __eq__
    """
)

FRAME_ATTRIBUTES = words(
    """
    f_back f_builtins f_code f_globals f_locals gi_frame gi_code cr_frame ag_frame tb_frame tb_next co_code
    func_globals mro
    """
)
MODULE_ATTRIBUTES_DENIED = words(
    """
    os sys gc inspect subprocess threading importlib ctypes builtins io pathlib shutil socket signal pickle marshal
    types operator weakref atexit warnings time multiprocessing tempfile codecs runpy pkgutil site platform mmap
    ctypeslib cffi asyncio concurrent
    """
)
"""Attribute names that would fetch a module through another one, such as dataclasses.sys."""

ESCAPE_ATTRIBUTES = frozenset({"py_func", "fn", "warmup", "preload", "cache_hook", "pre_run_hooks"})
"""Attributes of a compiled kernel that run it as plain Python or reach into its launcher."""

POINTER_METHODS = words(
    """
    data_ptr const_data_ptr storage untyped_storage set_ storage_type as_subclass register_hook apply_ map_ map2_
    resize_ resize_as_ share_memory_ module_load ctypes cdata record_stream hash_tensor pin_memory
    """
)
"""Tensor methods that expose or exchange memory."""

READ_METHODS = frozenset({"item", "tolist", "tobytes", "is_nonzero", "equal", "allclose"})
"""Tensor methods that bring values to the host: how memos on the contents of inputs begin."""

UNMISTAKABLE_METHODS = words(
    """
    matmul mm bmm addmm baddbmm addbmm softmax log_softmax relu sigmoid rsqrt erf masked_fill index_select logsumexp
    cumsum layer_norm einsum where clamp gather scatter_add
    """
)
"""Compute methods flagged when they are merely read (f = x.matmul), not only when called."""

_METHOD_STEMS = words(
    """
    abs absolute acos acosh add addbmm addcdiv addcmul addmm addmv addr all amax amin aminmax angle any arccos arccosh
    arcsin arcsinh arctan arctan2 arctanh argmax argmin argsort argwhere asin asinh atan atan2 atanh backward baddbmm
    bernoulli bincount bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor bmm
    cauchy ceil cholesky cholesky_inverse cholesky_solve clamp clamp_max clamp_min clip copysign corrcoef cos cosh
    count_nonzero cov cross cummax cummin cumprod cumsum deg2rad det diag diag_embed diagflat diff digamma dist div
    divide dot eq erf erfc erfinv exp exp2 expm1 exponential fill_diagonal fix flip fliplr flipud float_power floor
    floor_divide fmax fmin fmod frac frexp gather gcd ge geometric ger greater greater_equal gt hardshrink heaviside
    histc histogram hypot i0 igamma igammac index_add index_copy index_fill index_put index_reduce index_select inner
    inverse isclose isfinite isinf isnan isneginf isposinf isreal istft kron kthvalue lcm ldexp le lerp less
    less_equal lgamma log log10 log1p log2 log_normal log_softmax logaddexp logaddexp2 logcumsumexp logdet logical_and
    logical_not logical_or logical_xor logit logsumexp lt lu_solve masked_fill masked_scatter masked_select matmul
    matrix_exp matrix_power max maximum mean median min minimum mm mode msort mul multinomial multiply mv mvlgamma
    nan_to_num nanmean nanmedian nanquantile nansum ne neg negative nextafter nonzero norm normal not_equal orgqr
    ormqr outer polygamma pow prelu prod ptp put qr quantile rad2deg random reciprocal relu remainder renorm
    repeat_interleave roll rot90 round rsqrt scatter scatter_add scatter_reduce sgn sigmoid sign signbit sin sinc sinh
    slogdet softmax sort sqrt square std stft sub subtract sum sum_to_size svd take take_along_dim tan tanh tensordot
    tile topk trace triangular_solve tril triu true_divide trunc uniform unique unique_consecutive var vdot where
    xlogy addmv_ cumulative_trapezoid searchsorted choose compress partition argpartition repeat
    """
)
TENSOR_COMPUTE_METHODS = _METHOD_STEMS | frozenset(f"{stem}_" for stem in _METHOD_STEMS)
"""Methods of torch.Tensor and numpy.ndarray that compute; flagged by name wherever they are called outside kernels."""
