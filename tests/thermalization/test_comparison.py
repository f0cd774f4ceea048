from importlib import import_module

import numpy as np
import pytest

from jaxbnn.thermalization import compare

STEPS = np.unique(np.geomspace(1, 200_000, 1000).astype(int))
OUTPUT_STEPS = 100 * np.arange(1, 2001)


def recorded(rng):
    """Figure 1 in small: one chain merges late, two meet on a plateau, the score sees nothing."""
    noise = 0.1 * rng.normal(size=(4, len(STEPS)))
    level = np.log(1e-4)
    mse = {
        "informed": np.exp(level + noise[0]),
        "zero": np.exp(level + noise[1] + 3 * (STEPS < 90_000)),
        "random 1": np.exp(level + 2 + noise[2]),
        "random 2": np.exp(level + 2 + noise[3]),
    }
    score = {"zero": rng.normal(size=len(STEPS)) + 50 * np.exp(-STEPS / 5)}
    outputs = {name: rng.normal(size=(len(OUTPUT_STEPS), 20)) for name in mse}
    outputs["zero"] += 5 * (OUTPUT_STEPS < 60_000)[:, None]
    for name in ("random 1", "random 2"):
        outputs[name] += 10
    return mse, score, outputs


def test_all_criteria_at_once_as_in_figure_1(rng):
    mse, score, outputs = recorded(rng)
    pairs = [("zero", "informed"), ("random 1", "random 2"), ("random 1", "informed")]
    found = compare(
        STEPS, mse, score=score, output_steps=OUTPUT_STEPS, outputs=outputs, pairs=pairs
    )
    merged = found.of("teacher-student", "zero", "informed")
    assert merged.is_passed
    assert 85_000 < merged.lower_bound < 90_000
    assert np.exp(merged.level) == pytest.approx(1e-4, rel=0.05)
    assert found.of("stationarity", "zero").lower_bound == merged.lower_bound
    assert found.of("score", "zero").is_passed
    assert 5 < found.of("score", "zero").lower_bound < 50
    rhat = found.of("R-hat", "zero", "informed")
    assert rhat.is_passed
    assert rhat.lower_bound == 60_000
    # Fooled: two chains on one plateau agree with each other and are stationary.
    assert found.of("R-hat", "random 1", "random 2").is_passed
    assert found.of("stationarity", "random 1").is_passed
    for name in ("random 1", "random 2"):
        fooled = found.of("teacher-student", name, "informed")
        assert not fooled.is_passed
        assert fooled.lower_bound == 200_000
    assert not found.of("R-hat", "random 1", "informed").is_passed
    assert "not passed" in str(found)
    with pytest.raises(KeyError):
        found.of("score", "random 1")


@pytest.mark.parametrize(
    "pairs",
    [
        object(),
        "ab",
        ["ab"],
        [["zero", "informed"]],
        [("zero", "informed", "x")],
        [("zero", [])],
        [3],
    ],
)
def test_what_is_no_pair_is_refused(rng, pairs, annotations_unchecked):
    mse, _, outputs = recorded(rng)
    with pytest.raises(TypeError, match="pairs must be pairs of the chains' names, but is"):
        compare(STEPS, mse, output_steps=OUTPUT_STEPS, outputs=outputs, pairs=pairs)


def test_missing_chains_are_named(rng):
    mse, _, _ = recorded(rng)
    with pytest.raises(ValueError, match="no chain 'teacher'"):
        compare(STEPS, mse, informed="teacher")
    with pytest.raises(ValueError, match="no chain 'zero'"):
        compare(STEPS, mse, pairs=[("zero", "zero")])


def test_names_and_shapes_that_do_not_fit_are_told(rng, annotations_unchecked):
    mse, _, outputs = recorded(rng)
    with pytest.raises(TypeError, match="chains have names, but a key of mse is 0; write '0'"):
        compare(STEPS, {0: mse["zero"], 1: mse["informed"]})
    with pytest.raises(ValueError, match="no chain 'informed', nor any other"):
        compare(STEPS, {})
    with pytest.raises(ValueError, match=r"mse\['zero'\] must be one series .* has shape \(2,"):
        compare(STEPS, {**mse, "zero": np.stack([mse["zero"]] * 2)})
    with pytest.raises(ValueError, match=r"score\['zero'\] must be one series"):
        compare(STEPS, mse, score={"zero": np.ones((2, len(STEPS)))})
    shorter = {**outputs, "zero": outputs["zero"][:-1]}
    with pytest.raises(ValueError, match="'zero' and 'informed' must have one shape, but have"):
        compare(
            STEPS, mse, output_steps=OUTPUT_STEPS, outputs=shorter, pairs=[("zero", "informed")]
        )


def test_outputs_need_their_steps(rng):
    mse, _, _ = recorded(rng)
    outputs = {name: np.ones((len(STEPS), 2)) for name in ("zero", "informed")}
    with pytest.raises(ValueError, match="outputs needs output_steps"):
        compare(STEPS, mse, outputs=outputs, pairs=[("zero", "informed")])


def test_each_criterion_has_the_arguments_that_are_its_own(rng, monkeypatch):
    room, seen = import_module("jaxbnn.thermalization.comparison"), {}

    def recording(name, call):
        def recorded_call(*series, **options):
            seen[name] = options
            return call(*series, **options)

        return recorded_call

    for name in ("merge_time", "stationarity_time", "score_time", "blockwise_rhat"):
        monkeypatch.setattr(room, name, recording(name, getattr(room, name)))
    mse, score, outputs = recorded(rng)
    of_blocks = {"block_length": 40, "threshold": 1.2, "percentiles": (10, 90)}
    compare(
        STEPS, mse, score=score, output_steps=OUTPUT_STEPS, outputs=outputs,
        pairs=[("zero", "informed")], false_alarm_rate=1e-3, **of_blocks,
    )  # fmt: skip
    rate = {"false_alarm_rate": 1e-3}
    assert seen.pop("blockwise_rhat") == of_blocks | rate
    assert seen == dict.fromkeys(("merge_time", "stationarity_time", "score_time"), rate)
