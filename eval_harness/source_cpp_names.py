"""The names that C++ and CUDA text of a pass may use: headers, functions, namespaces. Data only; see source_cpp."""

from __future__ import annotations

import re

from eval_harness.source_names import words

HEADERS = re.compile(
    r"(torch/(extension|types|torch)\.h|ATen/(ATen|cuda/CUDAContext|cuda/CUDAContextLight|Parallel|Dispatch|"
    r"DeviceGuard)\.h|c10/(cuda/(CUDAGuard|CUDAStream|CUDAException)|util/(Half|BFloat16|Exception|complex))\.h|"
    r"cuda(_runtime(_api)?|_fp16|_bf16|_fp8|_pipeline|_pipeline_primitives)?\.h|cuda_fp16\.hpp|cuda_bf16\.hpp|"
    r"cuda/(pipeline|barrier|std/.*)|cooperative_groups(/.*)?(\.h)?|mma\.h|cub/.*|device_launch_parameters\.h|"
    r"vector_types\.h|math_constants\.h|immintrin\.h|x86intrin\.h|arm_neon\.h|omp\.h|"
    r"c?(math|stdint|float|limits|assert|string|stddef)(\.h)?|algorithm|array|vector|tuple|utility|type_traits|"
    r"limits|numeric|optional|string|memory|bit|initializer_list|iterator)"
)
ATEN_ALLOWED = re.compile(
    r"(Tensor|TensorOptions|TensorBase|IntArrayRef|ArrayRef|Scalar|ScalarType|Device|DeviceType|Half|BFloat16|"
    r"opmath_type|acc_type|empty|empty_like|empty_strided|zeros|zeros_like|ones|full|"
    r"k(Float|Double|Half|BFloat16|Int|Long|Short|Char|Byte|Bool|CUDA|CPU|Strided)\w*|dtype|device|options|"
    r"cuda::(getCurrentCUDAStream|CUDAGuard|OptionalCUDAGuard|CUDAStream|getCurrentDeviceProperties|"
    r"getDeviceProperties|current_device)|PackedTensorAccessor\w*|RestrictPtrTraits|GenericPackedTensorAccessor|"
    r"MemoryFormat(::\w+)?|DeviceGuard|OptionalDeviceGuard|parallel_for|get_num_threads|detail::\w+|"
    r"Layout|nullopt|optional|Float|Long|BFloat16)"
)
_MATHS = words(
    """
    abs fabs fmax fmin max min sqrt rsqrt cbrt exp exp2 exp10 expm1 log log2 log10 log1p pow sin cos tan sincos asin
    acos atan atan2 sinh cosh tanh asinh acosh atanh erf erfc erfinv erfcx lgamma tgamma floor ceil round trunc rint
    nearbyint fmod remainder fma hypot copysign ldexp frexp modf isnan isinf isfinite signbit normcdf rcbrt llrint
    lrint lround llround norm3d saturate sinpi cospi fdim ilogb logb scalbn nextafter
    """
)
CALLS = (
    _MATHS
    | {f"{name}f" for name in _MATHS}
    | words(
        """
    if for while switch catch return sizeof alignof decltype noexcept alignas static_assert defined else and or not
    static_cast reinterpret_cast const_cast volatile template asm __asm__ explicit operator new delete throw
    requires co_await int float double bool char long short unsigned signed
    size_t int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t half half2 nv_bfloat16 nv_bfloat162 auto
    __half __half2 __nv_bfloat16 __nv_bfloat162 dim3 float2 float4 int2 int4 uint2 uint4 const void
    memcpy memset assert

    atomicAdd atomicSub atomicMax atomicMin atomicExch atomicCAS atomicAnd atomicOr atomicXor atomicInc atomicDec
    atomicAdd_block hexp hlog hsqrt hrsqrt hrcp hsin hcos hexp2 hlog2 htanh

    TORCH_CHECK TORCH_CHECK_EQ TORCH_INTERNAL_ASSERT PYBIND11_MODULE C10_CUDA_CHECK C10_CUDA_KERNEL_LAUNCH_CHECK
    AT_CUDA_CHECK C10_LAUNCH_BOUNDS_1 C10_LAUNCH_BOUNDS_2 C10_UNLIKELY C10_LIKELY AT_CEIL_DIV AT_ASSERTM
    __launch_bounds__ __align__ __attribute__ __cluster_dims__ __grid_constant__
    omp_get_max_threads omp_get_num_threads omp_get_thread_num
    """
    )
)
"""Functions, macros and keywords that may be called without being defined in the text."""
CALL_PATTERNS = re.compile(
    r"make_(u?(int|char|short|long|longlong)|float|double)[1-4]|_mm\d*_\w+|v[a-z]+q?(_[a-z]+)?_[fsu]\d+(_\w+)?|"
    r"AT_DISPATCH_\w+|"
    r"__builtin_(expect|assume|assume_aligned|unreachable|popcount\w*|ctz\w*|clz\w*|prefetch|inf\w*|nan\w*|huge_val\w*|"
    r"fma\w*|fabs\w*|is(nan|inf|finite)|sqrt\w*)|"
    r"__(sync(threads|warp)\w*|shfl\w*|ballot\w*|all\w*|any\w*|activemask|match\w*|reduce_\w+|ldg|ldc[agsv]|st[cw]\w+|"
    r"threadfence\w*|nanosleep|trap|brev\w*|clz\w*|ffs\w*|popc\w*|fns|byte_perm|funnelshift_\w+|umul\w*|mul\w*|[us]ad\w*|"
    r"h[a-z0-9]+(_[a-z]+)*|half\w*|bfloat16\w*|halves2\w+|low\w+|high\w+|lows2\w+|highs2\w+|u?(int|short|ll|char)\w*2\w+|"
    r"float\w*|double\w*|hiloint2\w+|[fd](add|mul|div|sub|sqrt|rcp|ma|rsqrt|dividef|maf)\w*|fdividef|"
    r"(exp|exp10|log|log2|log10|pow|sin|cos|tan|sincos|saturate|frcp|tanh)f|v[a-z]+[24]|dp[24]a\w*|"
    r"isShared|isGlobal|cvta\w+|pipeline_\w+|restrict__|assume|nv_cvt_\w+|nv_fp8\w*|cudaCvt\w*)"
)
STD = words(
    """
    max min vector array tuple pair make_tuple make_pair tie get move forward swap abs fabs sqrt exp exp2 log log2 log1p
    expm1 pow tanh sin cos tan erf erfc floor ceil round trunc fmod fma fmax fmin isnan isinf isfinite copysign hypot
    lround rint nearbyint atan atan2 asin acos sinh cosh lgamma tgamma cbrt numeric_limits string to_string size_t
    ptrdiff_t nullptr_t byte int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t intptr_t uintptr_t
    is_same is_same_v enable_if enable_if_t conditional conditional_t decay decay_t remove_reference_t is_floating_point
    is_floating_point_v is_integral is_integral_v integral_constant true_type false_type optional nullopt make_optional
    fill fill_n copy copy_n transform accumulate reduce sort stable_sort nth_element partial_sort iota clamp begin end
    size data function initializer_list memcpy memset declval index_sequence make_index_sequence tuple_size
    tuple_element common_type_t is_pointer_v remove_cv_t remove_const_t make_unsigned_t bit_cast popcount countl_zero
    plus multiplies minus less greater all_of any_of none_of max_element min_element lower_bound upper_bound prod inner
    multiplies exchange runtime_error invalid_argument lcm gcd distance next prev complex real imag conj
    partial_sum swap_ranges reverse rotate unique lexicographical_compare span string_view
    """
)
CUDA_RUNTIME = re.compile(
    r"cuda(GetLastError|PeekAtLastError|GetErrorString|GetErrorName|FuncSetAttribute|FuncSetCacheConfig|"
    r"FuncGetAttributes|Occupancy\w+|MemsetAsync|GetDevice|DeviceGetAttribute|GetDeviceProperties|LaunchKernel(ExC|Ex)?|"
    r"LaunchCooperativeKernel|StreamSynchronize|DeviceSynchronize|Success|Error\w*|Stream_t|DeviceProp|FuncAttribute\w*|"
    r"DevAttr\w+|FuncCache\w+|LaunchConfig_t|LaunchAttribute\w*|FuncAttributes|SharedmemCarveout\w*)"
)
"""Names of the runtime API that may stand anywhere; streams, graphs, events, memory and peers are left out."""
DENIED_NAMES = re.compile(
    r"cublas\w*|cudnn\w*|cusolver\w*|cusparse\w*|cufft\w*|cutlass\w*|nvrtc\w*|nvml\w*|cupti\w*|mkl\w*|cblas_\w+|"
    r"dnnl\w*|[sd]gemm_?|cu[A-Z]\w*|system|popen|v?fork|clone\d?|exec[lv]\w*|posix_spawn\w*|dl[a-z]+_?\w*|syscall|ptrace|"
    r"prctl|mprotect|mmap\w*|munmap|mremap|memfd_create|open\w*|creat|f(open|reopen|dopen|write|read|puts|printf|close|"
    r"flush|get[cs]|put[cs])\w*|read|readv|write|writev|pread\w*|pwrite\w*|send\w*|recv\w*|v?dprintf|printf|puts|putchar|"
    r"[io]?fstream|cout|cerr|cin|clog|filesystem|(secure_)?getenv|setenv|putenv|environ|socket\w*|connect|bind|accept|"
    r"kill\w*|raise|signal|sig[a-z]+|_?_?exit|_Exit|quick_exit|abort|at_quick_exit|atexit|process_vm_\w+|shm_\w+|shmat|"
    r"pthread_\w+|thrd_\w+|mtx_\w+|cnd_\w+|tss_\w+|thread|jthread|async|future|promise|packaged_task|mutex|"
    r"condition_variable|call_once|once_flag|getpid|getppid|prlimit\w*|[gs]etrlimit|mincore|madvise|msync|"
    r"p?poll|p?select|epoll\w*|eventfd|clock\w*|times?|timespec_get|gettimeofday|chrono|"
    r"nanosleep|usleep|sleep\w*|sched_\w+|setitimer|alarm|Py[A-Z]\w*|__builtin_(return|frame)_address|__thread|"
    r"constructor|destructor|alias|ifunc|weakref|cleanup|init_priority|setjmp|longjmp|thread_local|_Thread_local|"
    r"malloc|calloc|realloc|free|sbrk|brk|dup\d?|pipe\d?|ioctl|fcntl|unlink|rename|remove|link|symlink|mkdir|chdir|"
    r"__managed__|_Pragma|__libc_\w+|__clone|__read|__write|__open\w*|__vfork|__sys\w+|__cxa\w*|dlmopen|terminate"
)
"""Refused wherever the word stands, called or not, so that no pointer to one is taken either."""
ALSO_VARIABLES = words("time times free read write link remove alarm signal alias cleanup future bind accept pipe")
"""Of these, the words that a kernel may give to a variable; not to be called even then."""
METHODS_MISSED = words("sum mean add add_ mul mul_ sub sub_ div div_ exp tanh sqrt pow amax relu_ sigmoid_ norm argmax")
PRAGMAS = re.compile(
    r"once|unroll\b.*|omp\s+.*|GCC\s+(ivdep|unroll|optimize|target|diagnostic)\b.*|nv_\w+.*|clang\s+loop.*"
)
