"""The verdict on draws: whether chains agree about what they predict, in one sentence."""

import jax
import numpy as np
import pytest

from jaxbnn.sampling import Draws
from jaxbnn.tabular.posteriors import make_posterior
from jaxbnn.tabular.samplers import Fitted
from jaxbnn.tabular.settings import Settings
from jaxbnn.tabular.verdict import judge_chains
from jaxbnn.tabular.wording import as_option

X = np.linspace(-1, 1, 12, dtype=np.float32)[:, None]
POSTERIOR = make_posterior("pcn", Settings("pcn", (2,), 2, 1, 4, 0.3, 0), X, X[:, 0], None)


def fitted(shift, chains=2, frozen=False):
    """Independent draws; those of the last chain have another read-out bias."""
    rng = np.random.default_rng(0)
    like = jax.eval_shape(POSTERIOR.sample_prior, jax.random.key(0))
    draw = lambda leaf: rng.normal(size=(chains, 300, *leaf.shape)).astype(np.float32)  # noqa: E731
    positions = jax.tree.map(draw, like)
    positions["network"][-1]["b"][-1] += np.float32(shift)
    if frozen:
        positions = jax.tree.map(lambda leaf: np.repeat(leaf[:, :1], 300, axis=1), positions)
    steps, rate = np.arange(300), np.ones(chains)
    return Fitted(positions, Draws(positions, None, {}, None, None, steps, rate, False), [])


@pytest.mark.parametrize(
    ("draws", "is_good", "said"),
    [
        (fitted(0.0), True, "Believe the chains: they agree about what they predict (R-hat"),
        (fitted(5.0), False, "raise warmup and samples, or take sampler='nuts'."),
        (fitted(0.0, frozen=True), False, "of the chains, 0, 1 never moved"),
        (fitted(0.0, chains=1), False, "One chain cannot tell"),
        (fitted(0.0)._replace(draws=None), True, "no diagnostic of chains can show"),
    ],
)
def test_chains_are_judged_by_what_they_predict(draws, is_good, said):
    verdict = judge_chains("pcn", draws, POSTERIOR, X)
    assert verdict.is_good == is_good
    assert said in str(verdict)
    assert str(verdict) == " ".join(verdict.sentences)


def test_the_command_is_told_of_its_options():
    verdict = judge_chains("nuts", fitted(5.0), POSTERIOR, X, as_option)
    assert "raise --warmup and --samples, or take fewer --hidden units." in str(verdict)
    assert verdict.numbers["rhat"] > 1.05
