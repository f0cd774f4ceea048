"""How docstrings are read for the reference: what is returned is prose, its type elsewhere."""

import re
from typing import Any

import griffe

_RETURNS = re.compile(r"^(Returns\n-{3,}\n)(?![: ])(.*?)(?=^\w[\w ]*\n-{3,}\n|\Z)", re.M | re.S)


class ProseReturns(griffe.Extension):
    """Indent the prose of a Returns section, so that its first line is not taken for a type."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrite the docstring of one object."""
        if obj.docstring is not None:
            obj.docstring.value = _RETURNS.sub(_indented, obj.docstring.value)


def _indented(match: re.Match) -> str:
    lines = match[2].rstrip("\n").split("\n")
    body = "\n".join(f"    {line}".rstrip() for line in lines)
    return f"{match[1]}:\n{body}\n\n"
