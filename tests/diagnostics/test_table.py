import re

import arviz
import jax.numpy as jnp
import numpy as np
import pytest

from jaxbnn.diagnostics import ess_bulk, mcse, rank_rhat, summary
from jaxbnn.diagnostics import table as table_module
from tests.diagnostics.chains import autoregressive

SHAPE = (4, 200)


def positions(rng):
    w = rng.normal(size=(*SHAPE, 2, 1)).astype(np.float32)
    b = rng.normal(size=(*SHAPE, 1)).astype(np.float32)
    return ({"w": w, "b": b}, ())


def test_names_and_numbers(rng):
    draws = positions(rng)
    table = summary(draws)
    assert table.names == ("0.b[0]", "0.w[0,0]", "0.w[1,0]")
    assert (table.num_chains, table.num_draws) == SHAPE
    stacked = np.concatenate([draws[0]["b"], draws[0]["w"][..., 0]], axis=2)
    flat = stacked.reshape(-1, 3)
    np.testing.assert_allclose(table.mean, flat.mean(axis=0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(table.sd, flat.std(axis=0, ddof=1), rtol=1e-5)
    quantiles = np.quantile(flat, [0.05, 0.5, 0.95], axis=0)
    np.testing.assert_allclose([table.q5, table.q50, table.q95], quantiles, rtol=1e-4, atol=1e-6)
    for i in range(3):
        x = stacked[..., i].astype(float)
        assert table.rhat[i] == pytest.approx(arviz.rhat(x), rel=1e-4)
        assert table.ess_bulk[i] == pytest.approx(arviz.ess(x), rel=1e-3)
        assert table.ess_tail[i] == pytest.approx(arviz.ess(x, method="tail"), rel=1e-3)
        assert table.mcse_mean[i] == pytest.approx(arviz.mcse(x), rel=1e-3)
        assert table.mcse_sd[i] == pytest.approx(arviz.mcse(x, method="sd"), rel=1e-3)
    assert table.warnings == ()


def cheap_statistics(x):
    return {"mean": jnp.mean(x), "largest": jnp.max(x)}


def test_leaves_one_by_one_equal_leaves_together(rng, monkeypatch):
    draws = positions(rng)
    monkeypatch.setattr(table_module, "_statistics", cheap_statistics)
    together = table_module._columns(draws)
    monkeypatch.setattr(table_module, "_COPY_BYTES", 0)
    apart = table_module._columns(draws)
    for name in ("mean", "largest"):
        np.testing.assert_allclose(apart[name], together[name], rtol=1e-4, atol=1e-6)


def test_a_function_of_the_position(rng):
    draws = positions(rng)
    table = summary(draws, function=lambda p: p[0]["w"][0] * jnp.arange(1.0, 4.0))
    assert table.names == ("f[0]", "f[1]", "f[2]")
    value = draws[0]["w"][..., 0, :] * np.arange(1, 4, dtype=np.float32)
    np.testing.assert_allclose(table.rhat, rank_rhat(value), rtol=1e-5)
    np.testing.assert_allclose(table.ess_bulk, ess_bulk(value), rtol=1e-4)
    np.testing.assert_allclose(table.mcse_mean, mcse(value), rtol=1e-4)


def test_prints_one_line_per_coordinate(rng):
    density = rng.normal(size=SHAPE)
    table = summary(rng.normal(size=(*SHAPE, 2)), log_density=density, names=["slope", "offset"])
    lines = str(table).splitlines()
    head = "mean sd mcse 5% 50% 95% R-hat ESS bulk ESS tail"
    assert lines[0].split() == head.split()
    assert [line.split("  ")[0] for line in lines[1:4]] == ["slope", "offset", "log density"]
    assert lines[4] == "4 chains of 200 draws"
    assert len({len(line) for line in lines[:4]}) == 1


def test_long_tables_show_the_worst(rng):
    draws = rng.normal(size=(*SHAPE, 3)).astype(np.float32)
    draws[..., 1] = autoregressive(rng, 0.99, *SHAPE)
    text = summary(draws).text(max_rows=1)
    assert "x[1]" in text.splitlines()[1]
    assert "(2 coordinates with larger bulk ESS are not shown)" in text


def test_chain_that_turns_nan_is_named(rng):
    draws = {"a": rng.normal(size=(*SHAPE, 2)), "b": rng.normal(size=SHAPE)}
    draws["a"][2, 17:, 1] = np.nan
    draws["a"][3, 30, 1] = np.inf
    table = summary(draws)
    assert table.nan_chains == (2, 3)
    assert "Chains 2, 3 turned NaN or infinite, first at draw 17, 30" in table.warnings[0]
    assert np.isnan(table.mean).tolist() == [False, True, False]
    assert np.isnan(table.rhat).tolist() == [False, True, False]
    assert "nan" in str(table)


def test_frozen_chain_is_named(rng):
    draws = rng.normal(size=(*SHAPE, 3))
    draws[1] = draws[1, :1]
    table = summary(draws)
    assert table.frozen_chains == (1,)
    assert any(w.startswith("Chain 1 never moved") for w in table.warnings)
    # A chain is frozen by its position: a function may be constant where the position is not.
    still = summary(rng.normal(size=(*SHAPE, 3)), function=lambda p: jnp.ones_like(p))
    assert still.frozen_chains == ()
    assert any("f[0], f[1], f[2] never changed in any chain" in w for w in still.warnings)


def test_chains_that_hold_different_values_are_told(rng):
    f = np.broadcast_to(np.array([-1.0, 1.0, -1.0, 1.0])[:, None], SHAPE)
    table = summary({"f": f, "w": rng.normal(size=SHAPE)})
    assert np.isposinf(table.rhat[0])
    assert not any("never changed in any chain" in w for w in table.warnings)
    assert any(w.startswith("f never changed within a chain, but") for w in table.warnings)
    assert any("R-hat is above 1.01 for 1 of 2 coordinates" in w for w in table.warnings)


def test_an_rhat_that_is_not_known_is_told():
    draws = np.zeros((4, 5))
    draws[:, 2] = 1  # the one draw that halving leaves out
    table = summary(draws)
    assert np.isnan(table.rhat).all()
    assert any(w.startswith("R-hat is not known (NaN) for 1 of 1 coord") for w in table.warnings)


def test_poor_mixing_is_said_in_words(rng):
    draws = rng.normal(size=(*SHAPE, 3))
    draws[..., 1] = autoregressive(rng, 0.99, *SHAPE) + 2 * np.arange(4.0)[:, None]
    rhat, ess = summary(draws).warnings
    assert rhat.startswith("R-hat is above 1.01 for 1 of 3 coordinates (largest: ")
    assert ess.startswith("The effective sample size is below 400 (100 per chain)")


def test_acceptance(rng):
    rate = np.full(SHAPE, 0.3)
    rate[0], rate[3] = 0.001, 1.0
    table = summary(rng.normal(size=(*SHAPE, 3)), acceptance_rate=rate)
    np.testing.assert_allclose(table.acceptance_rate, [0.001, 0.3, 0.3, 1.0], rtol=1e-6)
    low, high = table.warnings
    assert low.startswith("Chain 0 accepted less than 2% of the proposals")
    assert high.startswith("Chain 3 accepted more than 99.5% of the proposals")
    assert "acceptance 40.0% (0.1% to 100.0%)" in str(table)


def test_a_chain_without_a_rate_is_left_out_of_the_table_and_named_below(rng):
    rate = np.full(SHAPE, 0.3)
    rate[1, 7] = np.nan
    table = summary(rng.normal(size=(*SHAPE, 3)), acceptance_rate=rate)
    assert "acceptance 30.0% (30.0% to 30.0%)" in str(table)
    assert any(s.startswith("The acceptance rate of chain 1 is NaN") for s in table.warnings)
    unknown = summary(rng.normal(size=(*SHAPE, 3)), acceptance_rate=np.full(SHAPE, np.nan))
    assert ", acceptance" not in str(unknown)


def test_a_replica_that_hardly_accepts_is_told_with_its_rate(rng):
    rate = np.full((*SHAPE, 2), 0.3)
    rate[2, :, 1] = 0.002
    (told,) = summary(rng.normal(size=(*SHAPE, 3)), acceptance_rate=rate).warnings
    assert told.startswith("Replica 1 of chain 2 accepted next to nothing (0.002 on average). It")
    rate[0, :, 0] = 0.001
    (told,) = summary(rng.normal(size=(*SHAPE, 3)), acceptance_rate=rate).warnings
    assert "0 of chain 0, 1 of chain 2 accepted next to nothing (at most 0.002 on ave" in told


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        (
            [3],
            "Chain 1 diverged in 1 of 200 steps: .* That proposal was rejected .* its traj",
        ),
        ([3, 7], "Chain 1 diverged in 2 of 200 steps: .* Such proposals were rejected .* their tr"),
    ],
)
def test_divergent_steps_are_counted(steps, said, rng):
    flags = np.zeros(SHAPE, bool)
    flags[1, steps] = True
    (told,) = summary(rng.normal(size=(*SHAPE, 3)), is_divergent=flags).warnings
    assert re.match(said, told), told
    assert "(by NUTS, the last part" in told


def test_a_leaf_without_numbers_beside_others_has_no_row(rng):
    draws = rng.normal(size=SHAPE).astype(np.float32)
    found = summary({"a": np.zeros((*SHAPE, 0)), "b": draws, "c": np.zeros((*SHAPE, 2, 0))})
    assert found.names == ("b",)
    assert found.mean.tolist() == summary(draws).mean.tolist()
    with pytest.raises(ValueError, match="summary got no coordinates"):
        summary({"a": np.zeros((*SHAPE, 0))})


def test_one_chain_has_no_rhat(rng):
    table = summary(rng.normal(size=(1, 200)))
    assert np.isnan(table.rhat).all()
    assert np.isfinite(table.ess_bulk).all()
    assert any("one chain, so R-hat cannot be computed" in w for w in table.warnings)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"names": ["a"]}, "one name per coordinate, 3, but has 1"),
        (
            {"acceptance_rate": np.ones(4)},
            r"acceptance_rate needs .* positions, \(4, 200\), or \(chain, draw, replica\), but",
        ),
        ({"log_density": np.ones((4, 3))}, "log_density needs the shape"),
    ],
)
def test_the_door(arguments, message, rng):
    with pytest.raises(ValueError, match=message):
        summary(rng.normal(size=(*SHAPE, 3)), **arguments)


def test_too_few_draws():
    with pytest.raises(ValueError, match="needs at least 4 draws per chain, but there are 3"):
        summary(np.zeros((2, 3)))


def test_a_part_that_one_chain_alone_does_not_move_is_named(rng):
    draws = {
        "w": rng.normal(size=(*SHAPE, 3)),
        "scale": rng.normal(size=SHAPE),
        "is_in": np.zeros(SHAPE, int),
        "none": np.zeros((*SHAPE, 0)),
        "fixed": np.ones(SHAPE),
    }
    draws["w"][2] = draws["w"][2, :1]  # among the others: R-hat of many chains hides it
    draws["is_in"][:2, ::2] = 1  # what is discrete may keep its value
    table = summary(draws)
    assert table.frozen_chains == ()
    assert table.frozen_parts == ((2, "w"),)
    assert any(
        w.startswith("Chain 2 never moved w, which other chains move") for w in table.warnings
    )
    draws = {"w": draws["w"][[2, 2, 0, 1]], "scale": draws["scale"]}
    draws["scale"][3] = draws["scale"][3, 0]
    draws["w"][3] = draws["w"][3, 0]
    draws["w"][0, 5] = np.nan
    table = summary(draws)  # one met NaN, one is frozen as a whole: these are told as such
    assert (table.nan_chains, table.frozen_chains) == ((0,), (3,))
    assert table.frozen_parts == ((1, "w"),)
