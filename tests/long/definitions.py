"""Which definitions of a module changed: what takes only others from it is as it was."""

import ast
from collections.abc import Iterable

from experiments.record.checks import names_in


def changed_names(before: ast.Module, now: ast.Module) -> frozenset[str] | None:
    """Return the names that a module defines otherwise than before, and those that use these.

    Names that are gone count; imported names are definitions. None if more may have changed: where
    statements that define nothing differ, or use a name that changed.

    Examples
    --------
    >>> text = "from a import b\\ndef f():\\n    return b\\ndef g():\\n    return {}\\nh = [g]\\n"
    >>> def changed(before, now):
    ...     found = changed_names(ast.parse(before), ast.parse(now))
    ...     return found if found is None else sorted(found)
    >>> changed(text.format(1), text.format(2))
    ['g', 'h']
    >>> changed(text.format(1), text.format(1).replace("import b", "import c as b"))
    ['b', 'f']
    >>> changed(text.format(1), text.format(1) + "h.append(f)\\n")
    """
    (old, old_others), (new, new_others) = _definitions(before), _definitions(now)
    if _dumps(old_others) != _dumps(new_others):
        return None
    names = old.keys() | new.keys()
    found = {name for name in names if _dumps(old.get(name, [])) != _dumps(new.get(name, []))}
    while True:
        more = {name for name, nodes in new.items() if found & _words(nodes)} - found
        if not more:
            return None if found & _words(new_others) else frozenset(found)
        found |= more


def _definitions(module: ast.Module) -> tuple[dict[str, list[ast.AST]], list[ast.AST]]:
    """Return what defines each name, in order, and the statements that define none."""
    found: dict[str, list[ast.AST]] = {}
    others: list[ast.AST] = []
    for node in module.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            source = getattr(node, "module", None)
            for alias in node.names:
                one = ast.Tuple([ast.Constant(source), ast.Constant(alias.name)])
                if alias.name == "*":
                    others.append(node)
                else:
                    name = alias.asname or alias.name.split(".")[0]
                    found.setdefault(name, []).append(one)
            continue
        names = _defined(node)
        for name in names:
            found.setdefault(name, []).append(node)
        if not names:
            others.append(node)
    return found, others


def _defined(node: ast.AST) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = (
        node.targets
        if isinstance(node, ast.Assign)
        else [node.target]
        if isinstance(node, ast.AnnAssign)
        else []
    )
    if not all(isinstance(target, ast.Name | ast.Tuple) for target in targets):
        return []
    named = [one for target in targets for one in ast.walk(target)]
    return [one.id for one in named if isinstance(one, ast.Name)]


def _dumps(nodes: Iterable[ast.AST]) -> list[str]:
    return [ast.dump(node) for node in nodes]


def _words(nodes: Iterable[ast.AST]) -> set[str]:
    """Return every name that statements use, quoted ones too."""
    return set().union(*map(names_in, nodes))
