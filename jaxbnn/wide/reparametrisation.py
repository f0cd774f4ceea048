"""The reparametrised posterior: coordinates phi in which a wide network is nearly standard normal.

phi has the inner weights W as they are, and the read-out theta_out through the bijection

    theta_out = A_W phi_out + mu_W,    theta_out | W, Y ~ N(mu_W, Sigma_W),    A_W A_W^T = Sigma_W.

Relative to N(0, I) on phi, the posterior's log density is l(W), the log marginal likelihood with
the read-out integrated out; phi_out is standard normal and independent of W:

    log N(theta; 0, I) + log p(Y | theta) + k log|det A_W| = log N(phi; 0, I) + l(W).
"""

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PyTree, Shaped

from jaxbnn.networks import Network, apply, layer_shapes
from jaxbnn.numerics import sum_of_differences
from jaxbnn.numerics.arguments import check_word
from jaxbnn.wide.design import design_matrix, read_out_layer, stack_weights, unstack_read_out
from jaxbnn.wide.linear_model import (
    Form,
    cheaper_form,
    from_read_out,
    log_marginal_terms,
    to_read_out,
)
from jaxbnn.wide.validation import (
    check_network,
    check_noise_scale,
    check_precision,
    check_rounding,
    checked_data,
)

Scalar = Float[Array, ""]


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Reparametrisation:
    """The posterior of a network's weights in the coordinates phi; made by `reparametrise`.

    A PyTree: data and noise scale are leaves, network and form are static.

    Attributes
    ----------
    network
        In the ntk parametrisation, with a Dense read-out.
    form
        "data" (n x n matrices) or "features" (as wide as the read-out's input). A phi belongs to
        the form that made it.
    x, y
        Data, (n, *input_shape) and (n, k).
    noise_scale
        sigma.
    """

    network: Network = field(metadata={"static": True})
    form: Form = field(metadata={"static": True})
    # PyTrees are also rebuilt with leaves that are no arrays, hence Any.
    x: Any
    y: Any
    noise_scale: Any

    def log_likelihood(self, phi: PyTree) -> Float[Array, " terms"]:
        """Return terms of l(W), the log density relative to N(0, I): for `pcn` and `pcnl`.

        In the "data" form one term per datum, in the "features" form one per datum and one per
        feature. They do not depend on phi's read-out.
        """
        psi = design_matrix(self.network, phi, self.x)
        return log_marginal_terms(psi, self.y, self._sigma(psi), self.form)

    def log_density_terms(self, phi: PyTree) -> Float[Array, " terms"]:
        """Return terms of l(W) - |phi|^2 / 2: for `underdamped_langevin`.

        The prior has a term for each output of each layer, so that differences of terms keep their
        precision in float32 with millions of weights.
        """
        likelihood = self.log_likelihood(phi)
        prior = [
            -jnp.sum(jnp.square(leaf).reshape(-1, leaf.shape[-1]), axis=0) / 2
            for leaf in jax.tree.leaves(phi)
        ]
        return jnp.concatenate([likelihood, *prior])

    def log_density(self, phi: PyTree) -> Scalar:
        """Return l(W) - |phi|^2 / 2, the log posterior density of phi up to a constant."""
        return jnp.sum(self.log_density_terms(phi))

    def log_density_from(self, reference: PyTree):
        """Return phi -> log_density(phi) - log_density(reference), summed over differences.

        For kernels that subtract totals, BlackJAX's: a total over millions of weights has lost its
        digits in float32 where this has not.
        """
        reference_terms = self.log_likelihood(reference)

        def log_density(phi: PyTree) -> Scalar:
            ratio = sum_of_differences(self.log_likelihood(phi), reference_terms)
            halves = jax.tree.map(lambda u, r: jnp.sum((u - r) * (u + r)) / 2, phi, reference)
            return ratio - sum(jax.tree.leaves(halves))

        return log_density

    def to_weights(self, phi: PyTree) -> PyTree:
        """Return theta, the network's parameters at phi."""
        return self._with_read_out(phi, to_read_out)

    def from_weights(self, theta: PyTree) -> PyTree:
        """Return phi of the network's parameters theta, the inverse of `to_weights`."""
        return self._with_read_out(theta, from_read_out)

    def predict(
        self, phi: PyTree, x: Shaped[Array | np.ndarray, "m *input"]
    ) -> Float[Array, "m k"]:
        """Return the network's outputs at x for the weights at phi, without noise."""
        return apply(self.network, self.to_weights(phi), x)

    def _with_read_out(self, params: PyTree, move) -> PyTree:
        psi = design_matrix(self.network, params, self.x)
        read_out = stack_weights(params[-1])
        moved = move(read_out, psi, self.y, self._sigma(psi), self.form)
        return (*params[:-1], unstack_read_out(moved, self.network))

    def _sigma(self, psi: Array) -> Scalar:
        return jnp.asarray(self.noise_scale, psi.dtype)


def reparametrise(
    network: Network,
    x: Shaped[ArrayLike, "..."],
    y: Shaped[ArrayLike, "..."],
    noise_scale: ArrayLike,
    *,
    form: Form | None = None,
) -> Reparametrisation:
    """Reparametrise the posterior of an ntk network under Gaussian noise by its exact read-out.

    The model is y = f(x) + noise_scale * xi with standard normal weights and any number of
    outputs. May be called inside a traced function, with traced data and a traced noise scale.

    Parameters
    ----------
    network
        In the ntk parametrisation, of any depth, with a Dense as its last layer. phi is a PyTree
        like its parameters; `networks.init` draws one from N(0, I). With few data in many
        dimensions, `reduce_inputs` makes a smaller network with the same posterior.
    x, y
        Data of shapes (n, *input_shape) and (n, k), or (n,) for one output.
    noise_scale
        sigma > 0, the standard deviation of the noise, one number. To sample it, reparametrise
        inside the log likelihood of a position that holds log sigma as well: l(W) has all that
        depends on it.
    form
        None chooses the cheaper one by the shapes: "data" where n is at most the number of
        features (with the bias), else "features".

    Returns
    -------
    `Reparametrisation`, with `log_likelihood`, `log_density`, `to_weights`, `from_weights`,
    `predict`.

    Raises
    ------
    ValueError
        A network without a Dense at its end, or in the standard parametrisation; a read-out of
        images that were not flattened; shapes that do not fit; data that are not finite; a
        noise scale that is not one positive number, or whose square is lost in the rounding of
        the matrix that is factored, at weights from the prior; targets so large beside it that
        rounding makes another posterior there; an unknown form.
    TypeError
        x is not floating point; noise_scale is not a number.

    Notes
    -----
    Pezzetti et al., (2)-(3). l(W) as in erratum B3: in appendices A-C the sign
    of the exponent and the determinant are wrong, and the power k of the latter is missing. The
    bijection as in erratum B4.

    Examples
    --------
    >>> from jaxbnn import pcn
    >>> from jaxbnn.networks import init, mlp
    >>> network = mlp((2, 64, 1), "gelu", parametrisation="ntk")
    >>> x = jnp.array([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    >>> posterior = reparametrise(network, x, jnp.array([0.3, -0.2, 0.1]), noise_scale=0.1)
    >>> posterior.form
    'data'
    >>> kernel = pcn(posterior.log_likelihood, 0.3)
    >>> state = kernel.init(init(jax.random.key(0), network))
    >>> state, info = jax.jit(kernel.step)(jax.random.key(1), state)
    >>> jax.jit(posterior.predict)(state.position, x).shape
    (3, 1)
    """
    check_network(network)
    check_noise_scale(noise_scale)
    x, y = checked_data(network, x, y)
    if form is not None:
        check_word("form", form, ("data", "features"), "; None chooses the cheaper")
    if form is None:
        form = cheaper_form(x.shape[0], _num_features(network))
    check_rounding(network, form, x, noise_scale)
    check_precision(network, form, x, y, noise_scale)
    return Reparametrisation(network, form, x, y, noise_scale)


def _num_features(network: Network) -> int:
    (num_inputs,) = (network.input_shape, *layer_shapes(network))[-2]
    return num_inputs + read_out_layer(network).bias
