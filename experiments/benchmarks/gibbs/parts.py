"""What a sweep cannot do without, each part alone: random numbers, log masses, products.

Written with JAX and `jaxbnn.numerics` only, not with the sampler's code. A part is (function
of the step's number and its arguments, number of steps, arguments); the number enters, so that
nothing is computed once for all.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from experiments.benchmarks.gibbs.models import Case
from jaxbnn import Activation, Conv, Dense, Flatten
from jaxbnn.networks import layer_shapes
from jaxbnn.numerics import (
    log_mass_from_mode,
    standard_normal,
    truncated_normal_from_mode,
    uniform_open,
)

Part = tuple[Callable, int, tuple]
HIGHEST = lax.Precision.HIGHEST


def parts_of(case: Case) -> dict[str, Part]:
    """Return the parts of one sweep."""
    n, steps = case.x.shape[0], case.num_steps
    network, is_probit = case.model.network, case.model.output == "probit"
    shapes = [network.input_shape, *layer_shapes(network)]
    layers = list(zip(network.layers, shapes[:-1], shapes[1:], strict=True))
    num_outputs = math.prod(shapes[-1])
    num_pre = sum(math.prod(shape) for layer, shape, _ in layers if isinstance(layer, Activation))
    hidden = sum(
        math.prod(output) for layer, _, output in layers[:-1] if not isinstance(layer, Flatten)
    )
    # Pre-activations before an activation take one uniform each, all other latents a normal.
    num_truncated = num_pre + (num_outputs if is_probit else 0)
    num_normal = hidden - num_pre

    parts: dict[str, Part] = {
        "uniforms": (lambda i: uniform_open(_key(i), (num_truncated, n)), steps, ()),
        "normals": (lambda i: standard_normal(_key(i), (num_normal, n)), steps, ()),
    }
    values = jax.random.normal(jax.random.key(1), (num_pre, n))
    parts["log masses, two a pre-activation"] = (
        lambda i, v: log_mass_from_mode(v + _tiny(i)) - log_mass_from_mode(0.5 - v - _tiny(i)),
        steps,
        (values,),
    )
    edges = jax.random.normal(jax.random.key(2), (num_truncated, n))
    uniform = uniform_open(jax.random.key(3), (num_truncated, n))
    parts["truncated normals from uniforms"] = (
        lambda i, u, e: truncated_normal_from_mode(u, e + _tiny(i)),
        steps,
        (uniform, edges),
    )
    first_layer, *others = [entry for entry in layers if isinstance(entry[0], Dense | Conv)]
    parts |= _first_products(case, *first_layer)
    for layer, shape, output in others:
        parts |= _hidden_products(layer, shape[-1], output[-1], n, steps)
    return parts


def _first_products(case: Case, layer, shape, output) -> dict[str, Part]:
    """Return the two passes over the data: outputs, and data times residuals."""
    x = jnp.moveaxis(case.x, 0, -1) + 0
    residual = jax.random.normal(jax.random.key(4), (*output, x.shape[-1]))
    if isinstance(layer, Dense):
        w = jax.random.normal(jax.random.key(5), (shape[-1], layer.features))

        def outputs(w, x):
            return lax.dot_general(w, x, (((0,), (0,)), ((), ())), precision=HIGHEST)

        def cross(i, x, e):
            # Of 60,000 images in a sixth of the time of e x^T.
            return jnp.matmul(x, (e + _tiny(i)).T, precision=HIGHEST)
    else:
        w = jax.random.normal(jax.random.key(5), (*layer.window, shape[-1], layer.features))

        def outputs(w, x):
            return lax.conv_general_dilated(
                x, w, layer.stride, "VALID", dimension_numbers=("HWCN", "HWIO", "HWCN")
            )

        def cross(i, x, e):
            return jax.linear_transpose(lambda w: outputs(w, x), w)(e + _tiny(i))[0]

    return {
        "first layer: outputs": (lambda i, w, x: outputs(w + _tiny(i), x), case.num_steps, (w, x)),
        "first layer: data times residuals": (cross, case.num_steps, (x, residual)),
    }


def _hidden_products(layer, d: int, k: int, n: int, steps: int) -> dict[str, Part]:
    """Return products of a later Dense, (d, k): three for its inputs, three for its weights."""
    keys = jax.random.split(jax.random.key(6), 3)
    w, v = jax.random.normal(keys[0], (d, k)), jax.random.normal(keys[1], (d, n))
    z = jax.random.normal(keys[2], (k, n))

    def products(i, w, v, z):
        w, v = w + _tiny(i), v + _tiny(i)
        forward = jnp.matmul(w.T, v, precision=HIGHEST)
        gram = jnp.matmul(v, v.T, precision=HIGHEST)
        cross = jnp.matmul(v, (z - forward).T, precision=HIGHEST)
        return gram, cross, jnp.matmul(w, z - forward, precision=HIGHEST)

    def inverse(i, matrix):
        return jnp.linalg.inv(matrix + _tiny(i))

    matrix = jnp.eye(d + 1) + jnp.matmul(v, v.T)[:1, :1] / n
    name = f"Dense {d}-{k}"
    return {
        f"{name}: products": (products, steps, (w, v, z)),
        f"{name}: inverse": (inverse, steps, (matrix,)),
    }


def _key(i):
    return jax.random.fold_in(jax.random.key(7), i)


def _tiny(i):
    return 1e-9 * i.astype(jnp.float32)
