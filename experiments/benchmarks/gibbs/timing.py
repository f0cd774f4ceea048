"""Loops compiled ahead, so that what is measured neither compiles nor makes new buffers."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class Loop(NamedTuple):
    """A compiled program that takes `num_steps` steps.

    Attributes
    ----------
    program
        program(num_steps, *arguments).
    num_steps
        Steps a measurement takes.
    arguments
        The rest of its arguments.
    megabytes
        Of its arguments, results and temporaries.
    """

    program: Callable
    num_steps: int
    arguments: tuple
    megabytes: float

    @classmethod
    def of(cls, function: Callable, num_steps: int, arguments: tuple) -> "Loop":
        """Compile function(num_steps, *arguments)."""
        program = jax.jit(function).lower(jnp.int32(1), *arguments).compile()
        memory: Any = program.memory_analysis()
        total = memory.argument_size_in_bytes + memory.output_size_in_bytes
        total += memory.temp_size_in_bytes - memory.alias_size_in_bytes
        loop = cls(program, num_steps, arguments, total / 2**20)
        jax.block_until_ready(program(jnp.int32(1), *arguments))
        return loop


def compile_loop(part: Callable, num_steps: int, arguments: tuple) -> Loop:
    """Compile a loop over part(i, *arguments), whose result each step replaces.

    A part must use the number i of its step, or the compiler would compute it once.
    """

    def loop(count: Any, *arguments: Any) -> Any:
        first = part(jnp.int32(0), *arguments)
        return jax.lax.fori_loop(1, count, lambda i, _: part(i, *arguments), first)

    return Loop.of(loop, num_steps, arguments)


def milliseconds(loop: Loop) -> float:
    """Return the processor time of one step in milliseconds."""
    start = time.process_time()
    jax.block_until_ready(loop.program(jnp.int32(loop.num_steps), *loop.arguments))
    return 1e3 * (time.process_time() - start) / loop.num_steps
