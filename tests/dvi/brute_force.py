"""Draws of weights and outputs in NumPy, from a q written down here."""

import numpy as np

FUNCTIONS = {
    "relu": lambda z: np.maximum(z, 0),
    "heaviside": lambda z: (z > 0).astype(z.dtype),
    "identity": lambda z: z,
}


def draw_layer(generator, mean, scale_or_factor, count):
    """Return draws of {"w", "b"}; a matrix holds L with log L on the diagonal."""
    names = [name for name in ("w", "b") if name in mean]
    if isinstance(scale_or_factor, dict):
        return {
            n: np.asarray(mean[n], float)
            + np.exp(np.asarray(scale_or_factor[n], float))
            * generator.standard_normal((count, *np.shape(mean[n])))
            for n in names
        }
    factor = np.asarray(scale_or_factor, float)
    triangle = np.tril(factor, -1) + np.diag(np.exp(np.diag(factor)))
    flat = np.concatenate([np.asarray(mean[n], float).ravel() for n in names])
    draws = flat + generator.standard_normal((count, len(flat))) @ triangle.T
    width = np.size(mean["w"])
    parts = {"w": draws[:, :width].reshape(count, *np.shape(mean["w"]))}
    return parts | ({"b": draws[:, width:]} if "b" in mean else {})


def forward(layers, draws, x):
    """Return outputs (draw, n, k); layers are names of functions, "dense", or tuples (skips)."""
    h = x
    for layer, weights in zip(layers, draws, strict=True):
        if layer == "dense":
            h = h @ weights["w"]
            h = h + weights["b"][:, None, :] if "b" in weights else h
        elif isinstance(layer, tuple):
            h = h + forward(layer, weights, h)
        else:
            h = FUNCTIONS[layer](h)
    return h


def draw_all(generator, layers, mean, spread, count):
    return [
        draw_layer(generator, m, s, count) if layer == "dense"
        else draw_all(generator, layer, m, s, count) if isinstance(layer, tuple)
        else None
        for layer, m, s in zip(layers, mean, spread, strict=True)
    ]  # fmt: skip


def output_draws(seed, layers, mean, spread, x, count):
    generator = np.random.default_rng(seed)
    draws = draw_all(generator, layers, mean, spread, count)
    return forward(layers, draws, np.broadcast_to(x, (count, *x.shape)))


def compare_moments(draws, mean, covariance, slack=0.0):
    """Assert mean and covariance within 5.5 standard errors (plus slack times the deviation).

    At 100 comparisons the false-alarm rate is 4e-6; heavy tails of products are allowed for by
    estimating the standard errors of the second moments from the draws themselves.
    """
    count = len(draws)
    centred = draws - draws.mean(axis=0)
    deviation = draws.std(axis=0)
    error = deviation / np.sqrt(count)
    assert (np.abs(draws.mean(axis=0) - mean) <= 5.5 * error + slack * deviation).all()
    products = centred[..., :, None] * centred[..., None, :]
    error = products.std(axis=0) / np.sqrt(count)
    size = deviation[..., :, None] * deviation[..., None, :]
    assert (np.abs(products.mean(axis=0) - covariance) <= 5.5 * error + slack * size).all()
