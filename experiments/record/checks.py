"""Programs without their checks: what may end a call, but changes no number of one that goes on.

A check is a call of a function `check_...` or `_check_...` whose value is not used, or an `if` that
does nothing but raise an error made at the place, or check. Such a function that returns nothing is
a check as a whole, and an import is one whose name only checks used.
"""

import ast
import copy
import re

_WORD = re.compile(r"\w+")
_REFUSALS = {"ValueError", "TypeError", "InputError", "RuntimeError", "Exception", "BaseException"}


def without_checks(module: ast.Module) -> ast.Module:
    r"""Return a copy of a module's syntax tree without checks and docstrings.

    Examples
    --------
    >>> text = "from a import b, check_c\ndef f(x):\n    if b(x):\n        raise OSError(x)\n"
    >>> text += "    check_c(x)\n    return {}\n"
    >>> print(ast.unparse(without_checks(ast.parse(text.format("x")))))
    def f(x):
        return x
    >>> print(ast.unparse(without_checks(ast.parse(text.format("check_c(x)")))))
    from a import check_c
    <BLANKLINE>
    def f(x):
        return check_c(x)
    """
    left = _Checks().visit(copy.deepcopy(module))
    return _Imports(names_in(module) - names_in(left)).visit(left)


def catches_refusals(module: ast.Module) -> bool:
    r"""Return whether a module catches errors of the kinds that checks raise without an error then.

    Examples
    --------
    >>> text = "try:\n    f()\nexcept {}:\n    {}\n"
    >>> cases = [("ValueError", "x = 0"), ("OSError", "x = 0"), ("ValueError", "raise OSError")]
    >>> [catches_refusals(ast.parse(text.format(*case))) for case in cases]
    [True, False, False]
    """
    return any(
        isinstance(node, ast.ExceptHandler)
        and (node.type is None or names_in(node.type) & _REFUSALS)
        and not isinstance(node.body[-1], ast.Raise)
        for node in ast.walk(module)
    )


class _Checks(ast.NodeTransformer):
    """Removes checks and docstrings, but no imports."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST | None:
        gives = (ast.Return, ast.Yield, ast.YieldFrom)
        is_check = _is_of_check(node.name) and not any(
            isinstance(one, gives) and one.value is not None for one in ast.walk(node)
        )
        return None if is_check else self.generic_visit(node)

    def visit_If(self, node: ast.If) -> ast.AST | None:
        # The condition may not bind a name that goes on.
        binds = any(isinstance(one, ast.NamedExpr) for one in ast.walk(node.test))
        self.generic_visit(node)
        # Others than those made at the place stop a run, or are caught: `raise KeyboardInterrupt`.
        is_check = not node.orelse and all(
            isinstance(one, ast.Raise) and isinstance(one.exc, ast.Call) for one in node.body
        )
        return None if is_check and not binds else node

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        if isinstance(node.value, ast.Constant):
            return None
        function = node.value.func if isinstance(node.value, ast.Call) else None
        is_check = isinstance(function, ast.Name) and _is_of_check(function.id)
        return None if is_check else self.generic_visit(node)


class _Imports(ast.NodeTransformer):
    """Removes imports of some names."""

    def __init__(self, names: set[str]) -> None:
        self.names = names

    def visit_Import(self, node: ast.Import) -> ast.AST | None:
        return self._left(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:
        return self._left(node)

    def _left(self, node: ast.Import | ast.ImportFrom) -> ast.AST | None:
        node.names = [
            one for one in node.names if (one.asname or one.name.split(".")[0]) not in self.names
        ]
        return node if node.names else None


def _is_of_check(name: str) -> bool:
    return name.startswith(("check_", "_check_"))


def names_in(tree: ast.AST) -> set[str]:
    r"""Return every name that a tree uses, quoted ones too.

    Examples
    --------
    >>> sorted(names_in(ast.parse("import a\nb = c(a.d, 'e f')")))
    ['a', 'b', 'c', 'e', 'f']
    """
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.update(_WORD.findall(node.value))
    return found
