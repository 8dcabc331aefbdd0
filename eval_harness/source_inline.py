"""Calls of load_inline: the text of its sources must be a literal that was read here, and its flags plain."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from eval_harness.source_cpp import check_cpp
from eval_harness.source_names import LOAD_INLINE
from eval_harness.source_scope import Folder, Scope

_FLAGS = re.compile(
    r"-(O[0-3s]|O|std=(c|gnu)\+\+\d\w|W\w[\w-]*|g|march=[\w-]+|mtune=[\w-]+|m(avx|sse|fma|f16c)[\w.-]*|"
    r"f(openmp|fast-math|PIC|no-math-errno|finite-math-only|unroll-loops|tree-vectorize)|lineinfo|"
    r"-use_fast_math|use_fast_math|-expt-(relaxed-constexpr|extended-lambda)|-extended-lambda|"
    r"-ptxas-options=[\w=,-]+|Xptxas|-gencode(=.*)?|gencode(=.*)?|arch=\w+|-fmad=\w+|-maxrregcount=\d+|D\w+(=\d+)?|"
    r"lgomp|-threads=\d+)|-?[ \w=,.-]*v|arch=compute_\w+,code=\w+"
)

_MAX_DEPTH = 8
_SOURCE_KEYWORDS = ("cpp_sources", "cuda_sources")
_FLAG_KEYWORDS = ("extra_cflags", "extra_cuda_cflags")
_FREE_KEYWORDS = frozenset({"name", "functions", "verbose", "with_cuda", "with_pytorch_error_handling", "use_pch"})
_POSITIONS = ("name", "cpp_sources", "cuda_sources", "functions", "extra_cflags", "extra_cuda_cflags")


def check_load_inline(node: ast.Call, scope: Scope, folder: Folder) -> Iterator[tuple[int | None, str]]:
    """Broken rules of one load_inline call: its sources must be constant text, its flags plain."""
    arguments: list[tuple[str | None, ast.expr]] = list(zip(_POSITIONS, node.args, strict=False))
    arguments += [(keyword.arg, keyword.value) for keyword in node.keywords]
    if len(node.args) > len(_POSITIONS) or any(isinstance(value, ast.Starred) for _, value in arguments):
        yield None, "load_inline by position; name its arguments"
    read = [
        (name, value, constant_texts(value, scope, folder) if name in (*_SOURCE_KEYWORDS, *_FLAG_KEYWORDS) else None)
        for name, value in arguments
    ]
    together = "\n".join(text for name, _, texts in read if name in _SOURCE_KEYWORDS for _, text in texts or [])
    for name, value, texts in read:
        if name in _FREE_KEYWORDS:
            continue
        if name in _SOURCE_KEYWORDS or name in _FLAG_KEYWORDS:
            if texts is None:
                yield value.lineno, f"load_inline({name}=...) is not constant text; write the source as a literal"
                continue
            for first_line, text in texts:
                if name in _SOURCE_KEYWORDS:
                    for line, message in check_cpp(text, together):
                        yield first_line + line - 1, message
                elif not _FLAGS.fullmatch(text):
                    yield value.lineno, f"compiler flag {text!r}; optimisation and architecture flags only"
        elif not (isinstance(value, ast.Constant) and not value.value) and not (
            isinstance(value, ast.List) and not value.elts
        ):
            yield value.lineno, f"load_inline({name}=...); leave it out"


def constant_texts(node: ast.expr, scope: Scope, folder: Folder, depth: int = 0) -> list[tuple[int, str]] | None:
    """(first line, text) of each string that an expression certainly is, or None when that cannot be told.

    Follows +, f-strings of constants, lists, and names bound exactly once to such text, siblings too. A name that comes
    from a sibling keeps the sibling's line numbers.
    """
    if depth > _MAX_DEPTH:
        return None
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            return [(node.lineno, node.value)]
        if depth and type(node.value) in (int, float):
            return [(node.lineno, str(node.value))]  # a size inside an f-string
        return [] if node.value is None else None
    if isinstance(node, ast.List | ast.Tuple):
        collected: list[tuple[int, str]] = []
        for element in node.elts:
            part = constant_texts(element, scope, folder, depth + 1)
            if part is None:
                return None
            collected += part
        return collected
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left = constant_texts(node.left, scope, folder, depth + 1)
        right = constant_texts(node.right, scope, folder, depth + 1)
        if left is None or right is None or not left:
            return None
        if isinstance(node.left, ast.List):
            return left + right
        return [(left[0][0], "".join(text for _, text in left + right))]
    if isinstance(node, ast.JoinedStr):
        return _constant_of_pieces(node, scope, folder, depth)
    if isinstance(node, ast.Name):
        return _constant_of_name(node.id, scope, folder, depth)
    if isinstance(node, ast.Attribute):
        (module, _, name), *others = [origin.rpartition(".") for origin in scope.local_origins(node)] or [("", "", "")]
        return None if others or module not in folder.scopes else _constant_of_name(
            name, folder.scopes[module], folder, depth + 1
        )  # fmt: skip
    return None


def _constant_of_pieces(node: ast.JoinedStr, scope: Scope, folder: Folder, depth: int) -> list[tuple[int, str]] | None:
    pieces = []
    for piece in node.values:
        inner = piece.value if isinstance(piece, ast.FormattedValue) else piece
        if isinstance(piece, ast.FormattedValue) and (piece.format_spec is not None or piece.conversion != -1):
            return None
        texts = constant_texts(inner, scope, folder, depth + 1)
        if texts is None or len(texts) != 1:
            return None
        pieces.append(texts[0][1])
    return [(node.lineno, "".join(pieces))]


def _constant_of_name(name: str, scope: Scope, folder: Folder, depth: int) -> list[tuple[int, str]] | None:
    nodes = list(ast.walk(scope.tree))
    stores = [n for n in nodes if isinstance(n, ast.Name) and n.id == name and not isinstance(n.ctx, ast.Load)]
    values = [
        n.value
        for n in nodes
        if isinstance(n, ast.Assign) and any(isinstance(target, ast.Name) and target.id == name for target in n.targets)
    ]
    if any(isinstance(n, ast.arg) and n.arg == name for n in nodes):
        return None  # a parameter of the same name may stand for other text
    if len(stores) == 1 and len(values) == 1 and not scope.origins.get(name):
        if isinstance(values[0], ast.List) and _is_handed_elsewhere(f"{scope.module}.{name}", folder):
            return None
        return constant_texts(values[0], scope, folder, depth + 1)
    if not stores and depth <= _MAX_DEPTH:
        for origin in scope.origins.get(name, ()):
            module, _, attribute = origin.rpartition(".")
            if len(scope.origins[name]) == 1 and module in folder.scopes:
                return _constant_of_name(attribute, folder.scopes[module], folder, depth + 1)
    return None


def _is_handed_elsewhere(dotted: str, folder: Folder) -> bool:
    """Whether a list is used for more than load_inline's arguments: what is handed on can be changed."""
    module, _, name = dotted.rpartition(".")
    for scope in folder.scopes.values():
        given: set[int] = set()
        for node in ast.walk(scope.tree):
            if isinstance(node, ast.Call) and LOAD_INLINE in folder.origins(scope, node.func):
                given |= {id(value) for value in [*node.args, *(keyword.value for keyword in node.keywords)]}
        for node in ast.walk(scope.tree):
            is_own = isinstance(node, ast.Name) and node.id == name and scope.module == module
            is_import = isinstance(node, ast.Name | ast.Attribute) and dotted in scope.local_origins(node)
            loads = isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load)
            if (is_own or is_import) and loads and id(node) not in given:
                return True
    return False
