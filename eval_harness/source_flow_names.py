"""What may be done with an array outside a kernel: the allow-lists of the data-flow rules. Data only.

A method or builtin that is not here is refused on an array, so the lists hold what wrappers need: facts about an array,
views of it, casts and contiguous copies, and putting arrays into containers.
"""

from __future__ import annotations

from eval_harness.source_names import words

FACTS = words(
    """
    shape dtype device ndim size strides itemsize nbytes layout is_cuda is_cpu requires_grad is_sparse names
    stride numel dim ndimension element_size is_contiguous get_device storage_offset is_floating_point is_complex
    is_shared type flags is_quantized is_signed nelement is_leaf has_names dense_dim
    """
)
"""Attributes and methods of an array that say something of it, not of its values."""

VIEW_ATTRIBUTES = words("T mT H mH real imag data")
ARRAY_METHODS = words(
    """
    view reshape ravel transpose t squeeze unsqueeze permute flatten unflatten expand expand_as narrow select chunk
    split split_with_sizes tensor_split unbind view_as swapaxes swapdims moveaxis movedim diagonal unfold expand_dims
    numpy detach cpu cuda to type_as type astype contiguous clone copy float half bfloat16 double int long short bool
    byte char new_empty new_empty_strided new_zeros new_ones new_full zero_ fill_ fill copy_
    """
)
"""Views, casts, copies and allocation. item, tolist and computing methods are flagged by name (source_names)."""

KERNEL_ATTRIBUTES = words("__name__ __qualname__ forall run")
"""Attributes of a compiled kernel that may be read; others tell how often and with what it was called."""
CONTAINER_METHODS = words("append add insert extend update setdefault appendleft extendleft put")
"""Methods that store their arguments in the receiver."""
GROWING_METHODS = CONTAINER_METHODS | words("pop popleft popitem clear remove discard rotate sort reverse send throw")
"""Methods that change a container: state, if it outlives the call."""

SAFE_BUILTINS = words(
    """
    len isinstance issubclass callable hasattr tuple list dict zip enumerate reversed iter next slice type super object
    property staticmethod classmethod
    """
)
"""Builtins that may be given an array: they look at what holds it, not at its values."""
READING_BUILTINS = words("str repr format print bool float int complex bytes hash")
SHARED_ITERATORS = words("iter zip map filter enumerate reversed")
COMPUTING_BUILTINS = words("abs all any divmod max min pow round sum sorted map filter set frozenset range")

ARRAY_PRODUCERS = frozenset(
    f"{library}.{name}"
    for library, listed in (
        ("numpy", "empty empty_like zeros zeros_like ones ones_like full full_like asarray ascontiguousarray array "
         "reshape ravel transpose squeeze expand_dims moveaxis swapaxes broadcast_to require atleast_1d atleast_2d"),
        ("torch", "empty empty_like empty_strided zeros zeros_like ones ones_like full full_like from_numpy as_strided "
         "reshape view_as_real view_as_complex permute transpose swapaxes moveaxis movedim squeeze unsqueeze flatten "
         "ravel unflatten t narrow select chunk split tensor_split unbind broadcast_to"),
        ("numba", "cuda.as_cuda_array"),
    )
    for name in listed.split()
)  # fmt: skip
"""Library functions that return arrays. numpy scalars of casts (np.float32(a)) keep what they are given."""
LIBRARIES_THAT_COMPUTE = ("math.", "functools.reduce", "numpy.", "operator.")
TORCH_ALLOCATION = frozenset(
    f"torch.{name}"
    for name in words("empty empty_like empty_strided zeros zeros_like ones ones_like full full_like from_numpy")
)
DECORATORS = words(
    """
    dataclasses.dataclass functools.wraps torch.fx.wrap torch.no_grad triton.autotune triton.heuristics triton.jit
    triton.constexpr_function enum.unique typing.overload typing.no_type_check builtin:property builtin:staticmethod
    builtin:classmethod numba.njit numba.jit numba.vectorize numba.guvectorize numba.stencil numba.cuda.jit
    """
)
