"""The two lists of PassBench's own check, for the paper-faithful `passnet` protocol only.

Two rules over the rule files alone: a few torch packages may not be imported, and of the calls that resolve to torch by
import aliases only allocations may stand outside `pattern` and `replacement_args`. The lists of names are the public
harness's. Its holes (helpers unread, getattr, methods, other libraries) are kept: the protocol measures what the public
harness measures. Never used for a reward or a selection; source_rules.py is the real check.
"""

from __future__ import annotations

import ast

from eval_harness.source_names import words
from eval_harness.source_scope import Scope
from eval_harness.verdict import Violation

BLOCKED_IMPORTS = ("torch.nn", "torch.ops", "torch.autograd")
ALLOWED_CALLS = words("empty empty_like zeros zeros_like ones ones_like full full_like as_tensor")
_EXEMPT = frozenset({"pattern", "replacement_args"})


def check_upstream(trees: dict[str, ast.Module]) -> list[Violation]:
    """Broken rules of the rule files (path -> tree)."""
    found: list[Violation] = []
    for path, tree in trees.items():
        scope = Scope(path, tree)
        exempt = {
            id(inner)
            for node in tree.body
            if isinstance(node, ast.FunctionDef) and node.name in _EXEMPT
            for inner in ast.walk(node)
        }
        for node in ast.walk(tree):
            for module in _imported(node):
                if any(module == blocked or module.startswith(f"{blocked}.") for blocked in BLOCKED_IMPORTS):
                    found.append(_violation("source.import", path, node, f"import of {module} is not allowed"))
            if isinstance(node, ast.Call) and id(node) not in exempt:
                for origin in sorted(scope.local_origins(node.func)):
                    root, _, name = origin.partition(".")
                    if root == "torch" and name not in ALLOWED_CALLS:
                        message = f"{origin}() outside pattern; compute in a kernel"
                        found.append(_violation("source.torch-call", path, node, message))
    return found


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and not node.level:
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


def _violation(rule: str, path: str, node: ast.AST, message: str) -> Violation:
    return Violation(rule=rule, layer="source", file=path, line=getattr(node, "lineno", 1), message=message)
