"""Convolutions with the data axis last against sums over patches, in every form they take."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxbnn.gibbs import convolutions
from jaxbnn.gibbs.convolutions import convolve, correlate, filter_inputs
from jaxbnn.networks import Conv

SIZES = (3, 1024, 1100)  # at once; whole blocks; and a part of one
LAYERS = {
    "stride": (Conv(2, (3, 2), stride=(2, 1)), (7, 5, 1)),
    "channels": (Conv(3, (2, 2)), (4, 3, 2)),
    "more slices than are summed": (Conv(2, (3, 3)), (4, 4, 15)),
}


@pytest.fixture(autouse=True)
def one_device(x64, monkeypatch):
    """Blocks are for one device, and a test process may have several."""
    monkeypatch.setattr(jax, "device_count", lambda: 1)


@pytest.fixture(params=LAYERS)
def layer_and_shape(request):
    return LAYERS[request.param]


def drawn(layer, shape, n):
    rng = np.random.default_rng(n)
    w = rng.normal(size=(*layer.window, shape[-1], layer.features))
    return jnp.asarray(w), jnp.asarray(rng.normal(size=(*shape, n)))


def patches(layer, v):
    """What the filter sees, by an explicit loop: (rows, columns, height, width, c_in, n)."""
    v = np.asarray(v)
    (height, width), (down, right) = layer.window, layer.stride
    rows, columns = (v.shape[0] - height) // down + 1, (v.shape[1] - width) // right + 1
    return np.array(
        [
            [v[down * r : down * r + height, right * c : right * c + width] for c in range(columns)]
            for r in range(rows)
        ]
    )


@pytest.mark.parametrize("n", SIZES)
def test_sums_over_patches(n, layer_and_shape):
    layer, shape = layer_and_shape
    w, v = drawn(layer, shape, n)
    seen = patches(layer, v)
    out = jnp.einsum("rcijkn,ijko->rcon", seen, w)
    np.testing.assert_allclose(convolve(layer, w, v), out, rtol=1e-9, atol=1e-9)
    cross = np.einsum("rcijkn,rcon->ijko", seen, out)
    np.testing.assert_allclose(correlate(layer, v, out), cross, rtol=1e-9, atol=1e-9)
    features = seen.reshape(seen.shape[0] * seen.shape[1], -1, n)
    np.testing.assert_array_equal(filter_inputs(layer, v), features)


@pytest.mark.parametrize("n", SIZES)
def test_derivatives(n, layer_and_shape):
    layer, shape = layer_and_shape
    (w, v), (dw, dv) = drawn(layer, shape, n), drawn(layer, shape, n + 1)
    dv = dv[..., :n]
    apply = jax.jit(lambda w, v: convolve(layer, w, v))
    # Linear in each: the derivative is the function itself, and the gradient its transpose.
    out, tangent = jax.jvp(apply, (w, v), (dw, dv))
    close = {"rtol": 1e-8, "atol": 1e-8}
    np.testing.assert_allclose(tangent, apply(dw, v) + apply(w, dv), **close)
    gradients = jax.grad(lambda w, v: jnp.sum(apply(w, v) ** 2) / 2, (0, 1))(w, v)
    np.testing.assert_allclose(gradients[0], correlate(layer, v, out), **close)
    np.testing.assert_allclose(jnp.sum(gradients[1] * dv), jnp.sum(out * apply(w, dv)), rtol=1e-8)


def test_second_derivatives_and_many_filters_at_once():
    layer, shape = LAYERS["channels"]
    w, v = drawn(layer, shape, 1100)
    seen = patches(layer, v)

    def total(w):
        return jnp.sum(convolve(layer, w, v) ** 2) / 2

    hessian = jax.hessian(total)(w)
    features = np.einsum("rcijkn,rclmqn->ijklmq", seen, seen)
    expected = np.einsum("ijklmq,op->ijkolmqp", features, np.eye(layer.features))
    np.testing.assert_allclose(hessian, expected, rtol=1e-8, atol=1e-8)
    stacked = jnp.stack([w, 2 * w])
    gradients = jax.vmap(jax.grad(total))(stacked)
    np.testing.assert_allclose(gradients[1], 2 * jax.grad(total)(w), rtol=1e-8)


def test_one_and_several_devices_agree(monkeypatch):
    layer, shape = LAYERS["stride"]
    w, v = drawn(layer, shape, 1100)
    out = convolve(layer, w, v)
    in_blocks = correlate(layer, v, out)
    assert not convolutions._is_at_once(v)
    monkeypatch.setattr(convolutions.jax, "device_count", lambda: 2)
    assert convolutions._is_at_once(v)
    np.testing.assert_allclose(correlate(layer, v, out), in_blocks, rtol=1e-10)
