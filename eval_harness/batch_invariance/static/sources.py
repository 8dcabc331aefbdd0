"""Where the batch enters: names of the contract, sizes of batched tensors, contents taken over all rows."""

from __future__ import annotations

import re
from collections.abc import Sequence

from eval_harness.batch_invariance.static.cross_row import statistic
from eval_harness.batch_invariance.static.state import Frame, Run
from eval_harness.batch_invariance.static.values import (
    EXTENT,
    NUM,
    PTR,
    ROWS,
    STRUCT,
    TENSOR,
    Dep,
    Val,
    num,
)
from eval_harness.batch_invariance.static.words import words

ROW_COUNTS = words(
    "m rows n_rows num_rows nrows row_count total_rows bs b batch batches bsz nbatch n_batch batch_size batchsize"
    " num_batch"
    " num_seqs n_seqs nseq nseqs num_requests n_requests num_reqs num_tokens n_tokens ntokens total_tokens num_queries"
    " total_q total_kv n_tok num_tok token_count bz nb m_rows"
)
"""Names (lower case) of a scalar argument that counts rows, beside those of the contract."""

_FEATURES = words(
    "k h d e c v n_heads num_heads heads nheads hidden hidden_size hidden_dim dim d_model vocab vocab_size n_vocab"
    " num_experts n_experts experts in_features out_features num_kv_heads n_kv_heads kv_heads head_dim channels groups"
    " num_groups hq hkv hk num_blocks num_pages n_pages page_size block_size s l seq seqlen seq_len sequence_length"
    " max_seq_len max_seqlen kv_len q_len ctx_len context_len sk lk skv width height inter_size intermediate_size"
)
"""Names (lower case) of a first dimension that is none of the batch."""
_SEQUENCE = words("s l seq seqlen seq_len sequence_length t n")
"""Of a matrix, these are its rows: one token a row."""

_WEIGHT_WORDS = re.compile(
    r"(^|_)(w|wt|wq|wk|wv|wo|wi|w\d+|w_.*|\w*weights?|bias|b\d*|biases|gamma|beta|alpha_w|kernel|filter|codebook|lut|luts|"
    r"embed\w*|emb|wte|cos|sin|freqs?|rope|inv_freq|cache|pool|pages|buffer|buf|table_w|qweight|qzeros|zeros|zp|lm_head|"
    r"experts?|slopes|a_log|dt_bias|w13|w2|w_scale|weight_scale|wscales?|params?|ln_w|ln_b|g|g_w)$"
)
_ROW_WORDS = re.compile(
    r"topk|block_tables?|page_tables?|logit|prob|expert_ids?|token|router|gate|seq|len|slot|indptr|routing"
)
_INT_WORDS = re.compile(
    r"(^|_)(i|ids?|idx|idxs|index|indices|indptr|lens?|lengths?|seqlens?|table|tables|offsets?|cu|cus?|map|slots?|pos|"
    r"positions?|counts?|page|pages_idx|sorted|starts?|ends?|ptrs?_i|sizes?|num|order|perm|labels?|tokens?|seeds?|"
    r"cnt|counter|counters|lock|locks|sem|semaphores?|queue|queues|work|worklist|sched|schedule|meta|plan|tiles?|splits?)"
    r"(_ptr|_ptrs)?$"
)


SIZE = "<size>"
"""Val.name of a size that has no name of its own yet."""
PER_ROW = "<per row>"
"""Val.name of a list with one entry a row: x.tolist()."""
CACHE_BATCH = frozenset(("B", "batch", "batch_size", "bsz", "num_seqs"))
"""Names that make even a cache's or a table's first dimension the batch."""


def is_weight(name: str) -> bool:
    """Whether a tensor of this name is shared by all rows."""
    name = name.lower().removesuffix("_ptr")
    return bool(_WEIGHT_WORDS.search(name)) and not _ROW_WORDS.search(name)


def holds_integers(name: str) -> bool:
    name = name.lower()
    return bool(_INT_WORDS.search(name.removesuffix("_ptr").removesuffix("_ptrs")))


def is_symbol(run: Run, name: str) -> bool:
    """Whether the contract names it as the size of the batch."""
    return name in run.symbols


def counts_rows(run: Run, name: str) -> bool:
    return name in run.symbols or (name.lower() in ROW_COUNTS and name != "BS")  # BS is a block size


def root_of(name: str | None) -> str:
    """Rows of a packed tensor are tokens; their number is no multiple of the number of requests."""
    lowered = (name or "").lower()
    return "T" if "tok" in lowered or "total" in lowered or lowered in ("t", "nnz") or "kv_ind" in lowered else "B"


def mode_of(name: str) -> int:
    """How a size that the contract names follows the batch: max_seqlen only bounds, an average does anything."""
    lowered = name.lower()
    if lowered.startswith(("max", "longest")):
        return EXTENT
    return STRUCT if lowered.startswith(("min", "avg", "mean")) else ROWS


def source(frame: Frame, line: int, name: str | None = None, mode: int = ROWS) -> Dep:
    """The first step of a dependency."""
    module = frame.module
    root = root_of(name) if mode == ROWS else None
    return Dep(mode, module.file, line + module.first_line, name=name, root=root)


def rows(frame: Frame, line: int, name: str | None = None) -> Val:
    value = num(source(frame, line, name), "i")
    value.name = name
    return value


def new_tensor(name: str, *, has_partner: bool = False) -> Val:
    """An argument of an entry: rows along its first dimension, unless it is a weight by its name."""
    value = Val(TENSOR)
    lowered = name.lower()
    second_matrix = has_partner and lowered in ("b", "y_w", "rhs", "other", "mat2")
    value.batch = None if second_matrix or is_weight(name) else 0
    value.elem = "i" if holds_integers(name) else "f" if name else None
    value.name = name
    return value


def size_at(frame: Frame, tensor: Val, position: int, line: int) -> Val:
    """tensor.shape[position]; called "<size>" until it is assigned to a name that may say more."""
    if tensor.dims is not None:
        if -len(tensor.dims) <= position < len(tensor.dims):
            return tensor.dims[position]
        return num(elem="i")
    is_rows = tensor.batch is not None and position == tensor.batch
    value = rows(frame, line) if is_rows else num(elem="i")
    value.name = SIZE
    value.data = is_rows if tensor.batch is not None else None
    return value


def sizes_named(
    run: Run, frame: Frame, tensor: Val, names: Sequence[str | None], line: int, start: int = 0
) -> list[Val]:
    """The sizes from dimension `start` on, unpacked into names; the names may say where the batch lies."""
    if tensor.dims is not None:
        sizes = list(tensor.dims[start : start + len(names)])
        return sizes + [num(elem="i")] * (len(names) - len(sizes))
    named = [
        position
        for position, name in enumerate(names, start)
        if name is not None and (is_symbol(run, name) if tensor.batch is not None else name in CACHE_BATCH)
    ]
    if named and tensor.kind == TENSOR:
        tensor.batch = named[0]
    elif tensor.batch is not None and start <= tensor.batch < start + len(names):
        name = names[tensor.batch - start]
        if name is not None and not may_be_rows(name, len(names)):
            tensor.batch = None
    result = []
    for position, name in enumerate(names, start):
        is_rows = position in named or (not named and position == tensor.batch)
        result.append(rows(frame, line, name) if is_rows else num(elem="i"))
    if start == 0 and tensor.kind == TENSOR and tensor.dims is None:
        tensor.dims = tuple(result)
    return result


def may_be_rows(name: str, rank: int | None) -> bool:
    """Whether a first dimension of this name can count rows."""
    lowered = name.lower()
    return lowered not in _FEATURES or (rank == 2 and lowered in _SEQUENCE)


def count_elements(frame: Frame, tensor: Val, line: int) -> Val:
    """tensor.numel()."""
    if tensor.dims is not None:
        dep = next((size.dep for size in tensor.dims if size.dep is not None), None)
        if dep is None and tensor.batch is None:
            return num(elem="i")
        if dep is not None:
            return num(dep if dep.mode == ROWS else dep.into(STRUCT), "i")
    if tensor.batch is not None:
        return rows(frame, line)
    return num(elem="i")


def over_rows(frame: Frame, tensor: Val, how: str, line: int) -> Val:
    """A scalar taken over the contents of all rows: a largest length, a total, or anything else."""
    if tensor.dep is not None:
        return num(tensor.dep, tensor.elem)
    if tensor.batch is None or tensor.kind not in (TENSOR, PTR, NUM):
        return num(elem=tensor.elem)
    if tensor.elem == "f" and how not in ("any", "all"):
        module = frame.module
        return num(statistic(module.file, line + module.first_line), "f")
    mode = {"max": EXTENT, "amax": EXTENT, "sum": ROWS, "last": ROWS}.get(how, STRUCT)
    value = num(source(frame, line, "total" if mode == ROWS else None, mode), tensor.elem)
    return value
