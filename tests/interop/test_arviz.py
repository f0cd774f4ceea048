"""Tests of interop.arviz_model: ArviZ reads our draws, judges networks by them, and gives them
back.
"""

import arviz
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import special, stats

import jaxbnn
from jaxbnn.interop.arviz import from_arviz, to_arviz
from jaxbnn.interop.numpyro import posterior_from_numpyro
from jaxbnn.networks import apply

pytestmark = pytest.mark.filterwarnings("ignore")  # Pareto k of so few draws, deprecations
IS_BEFORE_1 = int(arviz.__version__.split(".")[0]) < 1

X = np.linspace(-2, 2, 30, dtype=np.float32)[:, None]
Y = (np.abs(X) - 1 + 0.3 * np.random.default_rng(3).standard_normal(X.shape)).astype(np.float32)


def run(width):
    network = jaxbnn.mlp((1, width, 1), "tanh")
    posterior = jaxbnn.Posterior(network, jaxbnn.normal_prior(network), jaxbnn.Gaussian(0.3), X, Y)
    kernel = jaxbnn.repeat(jaxbnn.underdamped_langevin(posterior.log_density, 0.03, 0.1), 20)
    starts = posterior.sample_prior(jax.random.key(1), (2,))
    draws = jaxbnn.sample(jax.random.key(2), kernel, starts, 350, progress=False)
    # Warm-up left out afterwards: it would be another program to compile.
    late = jax.tree.map(lambda leaf: leaf[:, 200:], (draws.positions, draws.infos))
    return posterior, draws._replace(positions=late[0], infos=late[1])


@pytest.fixture(scope="module")
def narrow():
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        posterior, draws = run(1)
    return posterior, draws, to_arviz(draws, posterior, key=jax.random.key(5))


@pytest.fixture(scope="module")
def wide():
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        posterior, draws = run(6)
    return posterior, draws, to_arviz(draws, posterior)


def groups_of(data):
    return set(data.groups() if IS_BEFORE_1 else data.children)


def elpd(data):
    found = arviz.loo(data)
    return found.elpd_loo if IS_BEFORE_1 else found.elpd


def test_groups_and_names(wide, narrow):
    _, draws, data = narrow
    assert groups_of(data) == {
        "posterior",
        "sample_stats",
        "log_likelihood",
        "posterior_predictive",
        "observed_data",
        "constant_data",
    }
    assert wide[2].posterior["2.w"].dims == ("chain", "draw", "layer2_in", "layer2_out")
    np.testing.assert_array_equal(wide[2].posterior["0.b"], wide[1].positions[0]["b"])
    np.testing.assert_array_equal(data.observed_data["y"], Y)
    assert data.sample_stats["acceptance_rate"].shape == (2, 150)
    assert "0.w[0, 3]" in arviz.summary(wide[2]).index
    assert draws.positions[1] == ()


def test_log_likelihood_is_that_of_scipy(narrow):
    posterior, draws, data = narrow
    params = jax.tree.map(lambda leaf: leaf[1, 7], draws.positions)
    by_hand = stats.norm.logpdf(Y, apply(posterior.network, params, jnp.asarray(X)), 0.3)
    np.testing.assert_allclose(data.log_likelihood["y"][1, 7], by_hand, rtol=1e-4, atol=1e-4)
    prior = sum(stats.norm.logpdf(leaf).sum() for leaf in jax.tree.leaves(params))
    np.testing.assert_allclose(data.sample_stats["lp"][1, 7], by_hand.sum() + prior, rtol=1e-4)


def test_terms_are_laid_out_as_y_where_each_has_its_own(narrow):
    data = narrow[2]
    assert data.log_likelihood["y"].dims[2:] == data.observed_data["y"].dims == ("datum", "y_dim_0")
    if IS_BEFORE_1:
        pit = arviz.loo_pit(data, y="y")
        assert pit.shape == Y.shape
        assert ((pit >= 0) & (pit <= 1)).all()
    network = jaxbnn.mlp((1, 2))
    y = np.concatenate([Y, Y], axis=1)
    posterior = jaxbnn.Posterior(network, jaxbnn.normal_prior(network), jaxbnn.Gaussian(1.0), X, y)
    joint = to_arviz(posterior.sample_prior(jax.random.key(0), (2, 5)), posterior)
    assert joint.log_likelihood["y"].dims == ("chain", "draw", "datum")


def test_posterior_predictive_scatters_about_the_outputs(narrow):
    posterior, draws, data = narrow
    outputs = jax.vmap(jax.vmap(lambda p: apply(posterior.network, p, jnp.asarray(X))))(
        jax.tree.map(jnp.asarray, draws.positions)
    )
    noise = (data.posterior_predictive["y"].values - np.asarray(outputs)).ravel() / 0.3
    assert stats.kstest(noise, "norm").pvalue > 1e-6


def test_loo_and_compare_between_two_widths(narrow, wide):
    one, other = elpd(narrow[2]), elpd(wide[2])
    assert np.isfinite(one)
    # One tanh unit is monotone, and the data fall and rise.
    table = arviz.compare({"narrow": narrow[2], "wide": wide[2]})
    assert list(table.index) == ["wide", "narrow"]
    assert other > one + 10
    # LOO lies below the in-sample log predictive density.
    terms = wide[2].log_likelihood["y"].values.reshape(300, 30)
    in_sample = (special.logsumexp(terms, axis=0) - np.log(300)).sum()
    assert other < in_sample


def test_plot_trace(narrow, tmp_path):
    import matplotlib

    matplotlib.use("Agg")
    drawn = arviz.plot_trace(narrow[2], var_names=["0.w", "2.b"])
    figure = drawn.ravel()[0].figure if IS_BEFORE_1 else drawn
    figure.savefig(tmp_path / "trace.png")
    assert (tmp_path / "trace.png").stat().st_size > 10_000


def test_back_from_a_file(wide, tmp_path):
    _, draws, data = wide
    data.to_netcdf(str(tmp_path / "draws.nc"))
    back = from_arviz(arviz.from_netcdf(str(tmp_path / "draws.nc")))
    assert jax.tree.structure(back) == jax.tree.structure(draws.positions)
    jax.tree.map(np.testing.assert_array_equal, back, draws.positions)


def test_arviz_1_gets_a_tree_with_the_same_groups(narrow, tmp_path):
    posterior, draws, data = narrow
    tree = to_arviz(draws, posterior, format="DataTree")
    assert set(tree.children) == groups_of(data) - {"posterior_predictive"}
    np.testing.assert_array_equal(tree["log_likelihood"]["y"], data.log_likelihood["y"])
    tree.to_netcdf(tmp_path / "tree.nc", engine="h5netcdf")
    import xarray

    back = from_arviz(xarray.open_datatree(tmp_path / "tree.nc", engine="h5netcdf"))
    jax.tree.map(np.testing.assert_array_equal, back, draws.positions)


def test_arviz_1_judges_the_tree(narrow):
    arviz_stats = pytest.importorskip("arviz_stats", reason="ArviZ 1 needs Python 3.12")
    tree = to_arviz(narrow[1], narrow[0], format="DataTree")
    by_one = arviz_stats.loo(tree)
    assert by_one.elpd == pytest.approx(elpd(narrow[2]), abs=0.5)
    assert "0.w[0, 0]" in arviz_stats.summary(tree).index


def test_a_numpyro_model(tmp_path):
    """A variable a site; the posterior where its values live, and the positions beside it."""

    def model(y):
        mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
        scale = numpyro.sample("scale", dist.HalfNormal(1.0))
        numpyro.deterministic("ratio", mean / scale)
        numpyro.factor("penalty", -(mean**2))
        numpyro.sample("y", dist.Normal(mean, scale), obs=y)

    y = np.random.default_rng(0).normal(size=7)
    posterior = posterior_from_numpyro(model, y)
    positions = {
        "mean": np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3),
        "scale": np.full((2, 3), -0.5, np.float32),
    }
    data = to_arviz(positions, posterior, key=jax.random.key(0))
    assert set(data.posterior.data_vars) == {"mean", "scale", "ratio"}
    np.testing.assert_allclose(data.posterior["scale"], np.exp(-0.5), rtol=1e-6)
    assert set(data.log_likelihood.data_vars) == {"y"}
    by_hand = stats.norm.logpdf(y, positions["mean"][..., None], np.exp(-0.5))
    np.testing.assert_allclose(data.log_likelihood["y"], by_hand, rtol=1e-5)
    rest = -(positions["mean"] ** 2) + stats.norm.logpdf(positions["mean"])
    rest += stats.halfnorm.logpdf(np.exp(-0.5)) - 0.5
    np.testing.assert_allclose(data.sample_stats["lp"], by_hand.sum(-1) + rest, rtol=1e-5)
    assert data.posterior_predictive["y"].shape == (2, 3, 7)
    np.testing.assert_allclose(data.observed_data["y"], y, rtol=1e-6)
    assert np.isfinite(elpd(data))
    jax.tree.map(np.testing.assert_array_equal, from_arviz(data), positions)
    with pytest.raises(ValueError, match="dicts with the model's sites mean, scale"):
        to_arviz({"mean": positions["mean"]}, posterior)
    with pytest.raises(TypeError, match="of type dict; the draws come first"):
        to_arviz(positions, positions)


@pytest.mark.third_party(reason="NumPyro promotes dtypes and ranks")
def test_data_are_simulated_at_each_draw_and_by_random_numbers_of_their_own():
    def model(y, z):
        mean = numpyro.sample("mean", dist.Normal(0.0, 100.0))
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)
        numpyro.sample("z", dist.Normal(-mean, 1.0), obs=z)

    posterior = posterior_from_numpyro(model, np.zeros(7), np.zeros(7))
    mean = np.array([[-100.0, 0.0, 50.0], [200.0, 7.0, -30.0]], np.float32)
    data = to_arviz({"mean": mean}, posterior, key=jax.random.key(0), format="DataTree")
    y, z = (data["posterior_predictive"][name].to_numpy() for name in "yz")
    noise = np.stack([y - mean[..., None], z + mean[..., None]])
    assert np.abs(noise).max() < 6
    assert len(np.unique(np.abs(noise).round(3))) > 70  # of 84


def test_what_diverged_has_the_name_that_arviz_looks_for():
    positions = np.zeros((2, 3))
    infos = {"is_divergent": positions > 1, "num_integration_steps": positions.astype(int)}
    draws = jaxbnn.sampling.Draws(positions, infos, {}, None, None, np.arange(3), None, False)
    group = to_arviz(draws, format="DataTree")["sample_stats"]
    assert set(group.data_vars) == {"diverging", "n_steps"}


def test_the_inputs_are_beside_the_data():
    network = jaxbnn.mlp((2, 1))
    x = np.arange(6.0, dtype=np.float32).reshape(3, 2)
    posterior = jaxbnn.Posterior(
        network, jaxbnn.normal_prior(network), jaxbnn.Gaussian(0.3), x, x[:, :1]
    )
    positions = posterior.sample_prior(jax.random.key(0), (1, 2))
    data = to_arviz(positions, posterior, format="DataTree")
    np.testing.assert_array_equal(data["constant_data"]["x"], x)


def test_other_structures():
    a, b = np.zeros((1, 4, 2)), np.ones((1, 4))
    positions = {"network": ({"w": a}, ()), "log_noise_scale": b}
    data = to_arviz(positions, coords={"network.0.w_dim_0": ["age", "height"]})
    assert set(data.posterior.data_vars) == {"network.0.w", "log_noise_scale"}
    assert list(data.posterior["network.0.w_dim_0"].values) == ["age", "height"]
    back = from_arviz(data)
    assert jax.tree.structure(back) == jax.tree.structure(positions)
    del data.posterior.attrs["jaxbnn_structure"]
    assert set(from_arviz(data)) == {"network.0.w", "log_noise_scale"}
    again = from_arviz(data, like=positions)
    np.testing.assert_array_equal(again["log_noise_scale"], b)
    assert from_arviz(to_arviz(a)).shape == (1, 4, 2)  # a bare array


def test_axes_are_found_by_name(rng):
    positions = ({"w": rng.normal(size=(2, 5, 3, 4))}, ())
    data = to_arviz(positions, format="DataTree")
    group = data["posterior"].to_dataset()
    turned = {"posterior": group.transpose("draw", "layer0_in", "layer0_out", "chain")}
    for like in (None, positions):
        np.testing.assert_array_equal(from_arviz(turned, like)[0]["w"], positions[0]["w"])
    del turned["posterior"].attrs["jaxbnn_structure"]
    np.testing.assert_array_equal(from_arviz(turned)["0.w"], positions[0]["w"])
    for lost, dim in ((group.sel(chain=0), "chain"), (group.stack(s=("chain", "draw")), "chain")):
        with pytest.raises(ValueError, match=f"'0.w' has no dimension '{dim}', only"):
            from_arviz({"posterior": lost})
    one = from_arviz({"posterior": group.sel(chain=[1])})[0]["w"]
    np.testing.assert_array_equal(one, positions[0]["w"][1:])


def test_networks_of_two_widths_have_axes_of_their_own(rng):
    def network(width):
        return ({"w": rng.normal(size=(2, 5, 3, width)), "b": rng.normal(size=(2, 5, width))},)

    positions = {
        "mean": network(4),
        "scale": network(6),
        "log_precision": ({"w": np.zeros((2, 5))},),
    }
    data = to_arviz(positions, coords={"mean.layer0_out": list("abcd")})
    assert data.posterior["scale.0.w"].dims[2:] == ("scale.layer0_in", "scale.layer0_out")
    assert list(data.posterior["mean.0.b"]["mean.layer0_out"].values) == list("abcd")
    inside = to_arviz((positions,)).posterior
    assert inside["0.scale.0.w"].dims[2:] == ("scale.layer0.0_in", "scale.layer0.0_out")
    del positions["scale"]
    one = to_arviz(positions)
    assert one.posterior["mean.0.w"].dims[2:] == ("layer0_in", "layer0_out")


def test_a_tempered_posterior_has_the_likelihood_of_its_data(narrow):
    posterior, draws, plain = narrow
    for what in ("likelihood", "posterior"):
        tempered = posterior.tempered(4.0, what)
        data = to_arviz(draws, tempered)
        np.testing.assert_array_equal(data.log_likelihood["y"], plain.log_likelihood["y"])
        one = jax.tree.map(lambda leaf: leaf[1, 7], draws.positions)
        lp = data.sample_stats["lp"][1, 7]
        np.testing.assert_allclose(lp, tempered.log_density(one), rtol=1e-4)


def test_cross_entropy_has_the_likelihood_of_its_labels():
    """At whatever temperature it was sampled; "lp" is the density that was sampled."""
    network = jaxbnn.mlp((1, 2))
    x, y = jnp.linspace(-1, 1, 5)[:, None], jnp.array([0, 1, 1, 0, 1])
    prior = jaxbnn.normal_prior(network)
    posterior = jaxbnn.Posterior(network, prior, jaxbnn.CrossEntropy(2.0), x, y)
    draws = posterior.sample_prior(jax.random.key(0), (2, 4))
    one = jax.tree.map(lambda leaf: leaf[1, 3], draws)
    data = to_arviz(draws, posterior)
    expected = posterior.predictive(one, x).log_prob(y)
    np.testing.assert_allclose(data.log_likelihood["y"][1, 3], expected, rtol=1e-5)
    lp = posterior.log_density(one)
    np.testing.assert_allclose(data.sample_stats["lp"][1, 3], lp, rtol=1e-5)


def test_lp_is_the_posteriors_and_else_the_kernels(narrow):
    """Kernels of `log_density_from` leave a constant out, another one in each chain."""
    posterior, draws, plain = narrow
    own = np.asarray(plain.sample_stats["lp"]) - np.array([[100.0], [250.0]])
    shifted = draws._replace(infos={"logdensity": own})
    found = to_arviz(shifted, posterior).sample_stats
    np.testing.assert_array_equal(found["lp"], plain.sample_stats["lp"])
    np.testing.assert_array_equal(found["logdensity"], own)
    alone = to_arviz(shifted).sample_stats
    assert set(alone.data_vars) == {"lp"}
    np.testing.assert_array_equal(alone["lp"], own)

    def model(y):
        numpyro.sample("y", dist.Normal(numpyro.sample("m", dist.Normal(0.0, 1.0)), 1.0), obs=y)

    of_model = posterior_from_numpyro(model, np.zeros(2))
    m = np.array([[0.0, 1.0]])
    infos = {"logdensity": np.zeros((1, 2))}
    found = to_arviz(draws._replace(positions={"m": m}, infos=infos), of_model).sample_stats
    np.testing.assert_allclose(found["lp"], 3 * stats.norm.logpdf(m), rtol=1e-6)


def test_errors_are_sentences():
    with pytest.raises(ValueError, match="to_arviz got positions without any array"):
        to_arviz(())
    with pytest.raises(ValueError, match=r"two parameters .* be called 'a.b'; give one"):
        to_arviz({"a.b": np.zeros((1, 4)), "a": {"b": np.ones((1, 4))}})
    with pytest.raises(ValueError, match="put a chain axis first"):
        to_arviz({"a": np.zeros(3)})
    with pytest.raises(ValueError, match="needs the posterior"):
        to_arviz(np.zeros((1, 2)), key=jax.random.key(0))
    with pytest.raises(ValueError, match="no parameter has the dimension 'q'"):
        to_arviz(np.zeros((1, 2)), coords={"q": [1]})
    with pytest.raises(ValueError, match="needs 3 names, but has 1"):
        to_arviz(np.zeros((1, 2, 3)), coords={"x_dim_0": ["a"]})
    with pytest.raises(ValueError, match="no posterior group"):
        from_arviz({})
    with pytest.raises(ValueError, match="no variable 'b'"):
        from_arviz(to_arviz({"a": np.zeros((1, 2))}), like={"b": 0})


@pytest.mark.parametrize("rate", [3.0, 1.6e7, 5e9])
def test_large_counts_are_drawn_and_whole(rate):
    network = jaxbnn.mlp((1, 1))
    x, y = np.zeros((4, 1), np.float32), np.arange(4)
    likelihood = jaxbnn.targets.Poisson()
    posterior = jaxbnn.Posterior(network, jaxbnn.normal_prior(network), likelihood, x, y)
    at = np.full((2, 5000), np.log(rate), np.float32)
    exact = np.exp(at[0, 0].astype(float))
    positions = ({"w": jnp.zeros((2, 5000, 1, 1)), "b": jnp.asarray(at)[..., None]},)

    def model(y):
        mean = numpyro.sample("mean", dist.LogNormal(20.0, 1.0))
        numpyro.sample("y", dist.Poisson(mean), obs=y)
        numpyro.sample("z", dist.NegativeBinomial2(mean, 1e12).expand([4]).to_event(1), obs=y)

    other = posterior_from_numpyro(model, y)
    drawn = [
        to_arviz(place, target, key=jax.random.key(0), format="DataTree")["posterior_predictive"]
        for place, target in ((positions, posterior), ({"mean": at}, other))
    ]
    for values in (drawn[0]["y"], drawn[1]["y"], drawn[1]["z"]):
        values = values.to_numpy()
        assert values.dtype == np.int64
        assert values.shape == (2, 5000, 4)
        z = (values - exact) / exact**0.5
        sd = (1 + exact / 1e12) ** 0.5 if values is not drawn[0] else 1.0
        # Forty thousand draws: at most five standard errors, with float32's rounding of the rate.
        rounding = 4e-7 * exact**0.5
        assert abs(z.mean()) < 5 / 200 + rounding
        assert abs(z.std() / sd - 1) < 5 / (200 * 2**0.5) + 0.01
