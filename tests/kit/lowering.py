"""Programs of a test process share MLIR contexts, of which JAX makes one for each.

That is a third of what it takes to lower a small program, and tests lower some ten thousand. What
is compiled is the same. Nothing breaks where a JAX to come has no such function.
"""

import threading

from jax._src.interpreters import mlir
from jax._src.lib.mlir import ir

# What a context was told it keeps, constants too: so it is left after so many programs.
PROGRAMS_A_CONTEXT = 200
_kept = threading.local()


def share_contexts() -> None:
    """Make JAX lower up to `PROGRAMS_A_CONTEXT` programs of a thread in one context."""
    make = getattr(mlir, "make_ir_context", None)
    if make is None or hasattr(make, "makes"):
        return

    def context():
        if _is_lowering():  # a constant of a program that is being lowered: its module stays apart
            return make()
        _kept.count = getattr(_kept, "count", 0) + 1
        if _kept.count % PROGRAMS_A_CONTEXT == 1:
            _kept.context = make()
        return _kept.context

    context.makes = make
    mlir.make_ir_context = context


def _is_lowering() -> bool:
    try:
        return ir.Context.current is not None
    except ValueError:
        return False
