"""The two allow-lists of PassBench's own check, for the paper-faithful `passnet` protocol only.

Two rules over the rule files alone: imports by allow-list, and calls spelled torch.<name>(...) by allow-list outside
`pattern` and `replacement_args`. Its holes (helpers unread, getattr, methods, aliases) are kept: the protocol measures
what the public harness measures. Never used for a reward or a selection; source_rules.py is the real check.
"""

from __future__ import annotations

import ast

from eval_harness.source_names import words
from eval_harness.source_scope import attribute_chain
from eval_harness.verdict import Violation

IMPORTS = frozenset({"torch", "triton", "math", "typing", "functools", "numpy", "numba", "pass_dir", "__future__"})
TORCH_CALLS = words(
    """
    empty empty_like empty_strided zeros zeros_like ones ones_like full full_like as_strided fx.wrap device finfo
    iinfo from_numpy Size is_tensor cuda.current_stream cuda.current_device cuda.device cuda.get_device_properties
    cuda.get_device_capability utils.cpp_extension.load_inline
    """
)
_EXEMPT = frozenset({"pattern", "replacement_args"})


def check_upstream(trees: dict[str, ast.Module]) -> list[Violation]:
    """Broken rules of the rule files (path -> tree)."""
    found: list[Violation] = []
    for path, tree in trees.items():
        exempt = {
            id(inner)
            for node in tree.body
            if isinstance(node, ast.FunctionDef) and node.name in _EXEMPT
            for inner in ast.walk(node)
        }
        for node in ast.walk(tree):
            modules: list[str] = []
            line = getattr(node, "lineno", 1)
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                modules = [node.module or ""]
            for module in modules:
                if module.split(".")[0] not in IMPORTS:
                    found.append(_violation("source.import", path, line, f"import of {module} is not allowed"))
            if isinstance(node, ast.Call) and id(node) not in exempt:
                chain = attribute_chain(node.func)
                if chain and chain[0] == "torch" and ".".join(chain[1]) not in TORCH_CALLS:
                    message = f"{ast.unparse(node.func)}() outside pattern; compute in a kernel"
                    found.append(_violation("source.torch-call", path, line, message))
    return found


def _violation(rule: str, path: str, line: int, message: str) -> Violation:
    return Violation(rule=rule, layer="source", file=path, line=line, message=message)
