"""Tests of experiments.config, experiments.study and experiments.threads: settings from files and
command lines, and the sentences for those that do not fit.
"""

import importlib
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import Field, model_validator

from experiments.commands import CONFIGS
from experiments.config import parse_assignment, read_config, settings_for
from experiments.errors import InputError
from experiments.study import Settings, load_experiment, study_names
from experiments.threads import FLAG, LAPACK, settle_threads


class NormalPrior(Settings):
    kind: Literal["normal"]
    scale: float = Field(gt=0)


class BoxPrior(Settings):
    kind: Literal["box"]
    low: float
    high: float


class ChainSettings(Settings):
    num_samples: int = Field(gt=0)
    widths: tuple[int, ...] = (2, 2, 1)
    step_size: float = Field(default=0.1, gt=0)
    jitter: bool = False
    prior: Annotated[NormalPrior | BoxPrior, Field(discriminator="kind")]

    @model_validator(mode="after")
    def _ends_in_one(self):
        if self.widths[-1] != 1:
            raise ValueError("the last of 'widths' must be 1")
        return self


HEAD = 'study = "challenges"\nname = "xor"\ndescription = "exclusive or"\n'
BODY = """seed = 3
num_samples = 100
[prior]
kind = "normal"
scale = 3
[smoke]
num_samples = 10
[desk]
[paper]
widths = [2, 4, 1]
[paper.prior]
scale = 10.0
"""


def config_at(tmp_path, text):
    path = tmp_path / "xor.toml"
    path.write_text(text)
    return path


def settings_of(tmp_path, text, scale="desk", assignments=()):
    config = read_config(config_at(tmp_path, text))
    return settings_for(
        config, scale, ChainSettings, [parse_assignment(text) for text in assignments]
    )


def test_scales_override_the_file_and_set_overrides_both(tmp_path):
    text = HEAD + BODY
    assert settings_of(tmp_path, text, "smoke").num_samples == 10
    assert settings_of(tmp_path, text, "desk").num_samples == 100
    paper = settings_of(tmp_path, text, "paper")
    assert paper.widths == (2, 4, 1)
    assert paper.prior == NormalPrior(kind="normal", scale=10.0)
    changed = settings_of(tmp_path, text, "paper", ["prior.scale=2", "widths=[2, 1]"])
    assert changed.prior.scale == 2.0
    assert changed.widths == (2, 1)


def test_head_has_defaults(tmp_path):
    config = read_config(config_at(tmp_path, HEAD + "[smoke]\n"))
    assert (config.seed, config.experiment, config.scales) == (0, "xor", ("smoke",))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("not toml at all", ["xor.toml", "not a TOML file"]),
        (HEAD.replace("study", "sutdy"), ["'study'", "missing", "xor.toml", "'sutdy'"]),
        (HEAD.replace('"challenges"', "3"), ["'study'", "a string", "3", "xor.toml"]),
        (HEAD.replace('"xor"', '"../xor"'), ["'name'", "../xor", "xor.toml"]),
        (HEAD.replace('"xor"', '".."'), ["'name'", "..", "xor.toml"]),
        (HEAD.replace('"challenges"', '"/tmp"'), ["'study'", "/tmp", "xor.toml"]),
        (HEAD + "seed = -1\n", ["'seed'", "-1", "xor.toml"]),
        (HEAD + "seed = true\n", ["'seed'", "an integer", "xor.toml"]),
        (HEAD + "one_core_programs = 1\n", ["'one_core_programs'", "true or false", "xor.toml"]),
        (HEAD + "smoke = 3\n", ["'smoke'", "table", "xor.toml"]),
    ],
)
def test_a_wrong_head_is_one_sentence_with_key_and_file(tmp_path, text, words):
    with pytest.raises(InputError) as caught:
        read_config(config_at(tmp_path, text))
    assert_sentence(caught, words)


ASKED, SINGLE = "one_core_programs = true\n", f"{FLAG}=false"


@pytest.mark.parametrize(
    ("text", "before", "after"),
    [
        (ASKED, {}, {"XLA_FLAGS": SINGLE, LAPACK: "1"}),
        (ASKED, {"XLA_FLAGS": "--a=1"}, {"XLA_FLAGS": f"--a=1 {SINGLE}", LAPACK: "1"}),
        (ASKED, {"XLA_FLAGS": f"{FLAG}=true", LAPACK: "2"}, None),
        (ASKED, {"XLA_FLAGS": SINGLE, "OMP_NUM_THREADS": "4"}, None),
        (ASKED.replace("true", "false"), {}, None),
        ("one_core_programs = ", {}, None),
    ],
)
def test_a_config_can_keep_its_programs_to_one_core(tmp_path, monkeypatch, text, before, after):
    environment = dict(before)
    monkeypatch.setattr("os.environ", environment)
    settle_threads(config_at(tmp_path, HEAD + text))
    settle_threads(tmp_path / "nothing.toml")
    assert environment == (before if after is None else after)


def test_a_missing_file_and_a_directory_are_one_sentence(tmp_path):
    with pytest.raises(InputError, match=r"no config file .*nothing\.toml"):
        read_config(tmp_path / "nothing.toml")
    with pytest.raises(InputError, match=r"cannot be read: Is a directory"):
        read_config(tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("num_samples = 100", "num_smaples = 100", ["'num_smaples'", "did you mean 'num_samples'"]),
        ("[desk]", "[desk]\nnum_smaples = 1", ["'desk.num_smaples'", "did you mean 'num_samples'"]),
        ("widths = [2, 4, 1]", "widht = 3", ["'paper.widht'", "did you mean 'widths'"]),
        ("scale = 3", "scale = 3\nlocc = 1", ["'prior.locc'", "unknown"]),
        ("[smoke]", "[smok]", ["'smok'", "did you mean 'smoke'"]),
        ("num_samples = 100", 'num_samples = "100"', ["'num_samples'", "'100'", "integer"]),
        ("num_samples = 100", "num_samples = 1.0", ["'num_samples'", "1.0", "integer"]),
        ("num_samples = 100", "num_samples = true", ["'num_samples'", "True", "integer"]),
        ("num_samples = 10\n", "num_samples = 0\n", ["'smoke.num_samples'", "greater than 0"]),
        ("num_samples = 100", "num_samples = 1\nstep_size = nan", ["'step_size'", "finite"]),
        ("num_samples = 100", "num_samples = 1\nstep_size = inf", ["'step_size'", "finite"]),
        ("num_samples = 100", "num_samples = 1\njitter = 1", ["'jitter'", "1", "boolean"]),
        ("[2, 4, 1]", "[2, 4.5, 1]", ["'paper.widths.1'", "4.5", "integer"]),
        ("[2, 4, 1]", "[2, 4]", ["last of 'widths' must be 1", "'paper'"]),
        ("num_samples = 100", "", ["'num_samples'", "missing", "'desk'"]),
        ("scale = 3", "", ["'prior.scale'", "missing"]),
        ('"normal"', '"nomral"', ["'prior'", "nomral"]),
    ],
)
def test_wrong_settings_are_one_sentence_with_key_and_file(tmp_path, old, new, words):
    text = HEAD + BODY
    assert old in text
    with pytest.raises(InputError) as caught:
        settings_of(tmp_path, text.replace(old, new, 1))
    assert_sentence(caught, [*words, "xor.toml"])


@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        ("num_samples", ["key=value", "'num_samples'"]),
        ("=3", ["key=value"]),
        ("prior..scale=3", ["key=value"]),
        ("num_smaples=3", ["--set", "did you mean 'num_samples'"]),
        ("num_samples=many", ["--set", "'num_samples'", "'many'", "integer"]),
        ("num_samples=-3", ["--set", "'num_samples'", "greater than 0"]),
        ("num_samples.deep=3", ["--set", "'num_samples'", "not a table"]),
        ("seed=3", ["'seed'", "--seed"]),
        ("name=other", ["'name'", "edit the file"]),
        ("paper.num_samples=3", ["'paper'", "--scale"]),
    ],
)
def test_wrong_set_is_one_sentence(tmp_path, assignment, words):
    with pytest.raises(InputError) as caught:
        settings_of(tmp_path, HEAD + BODY, "desk", [assignment])
    assert_sentence(caught, words)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a=3", 3),
        ("a=3.0", 3.0),
        ("a=true", True),
        ('a="3"', "3"),
        ("a=[1, 2]", [1, 2]),
        ("a=tanh", "tanh"),
        ("a=b=c", "b=c"),
        ("a=1\nb = 2", "1\nb = 2"),
    ],
)
def test_set_reads_toml_values_else_strings(text, value):
    keys, parsed = parse_assignment(text)
    assert keys == ("a",)
    assert parsed == value
    assert type(parsed) is type(value)


def test_a_scale_that_is_unknown_or_absent_is_one_sentence(tmp_path):
    config = read_config(config_at(tmp_path, HEAD + "[smoke]\n"))
    with pytest.raises(InputError, match="no scale 'huge'"):
        settings_for(config, "huge", ChainSettings)
    with pytest.raises(InputError, match=r"has no table \[desk\]"):
        settings_for(config, "desk", ChainSettings)


@pytest.mark.parametrize("path", sorted(CONFIGS.rglob("*.toml")), ids=lambda path: path.stem)
def test_the_project_s_configs_are_valid_at_every_scale(path):
    config = read_config(path)
    assert config.scales == ("smoke", "desk", "paper")
    assert (path.parent.name, path.stem) == (config.study, config.name)
    experiment = load_experiment(config.study, config.experiment, str(path))
    for scale in config.scales:
        settings_for(config, scale, experiment.settings)


@pytest.mark.parametrize("study", study_names())
def test_studies_keep_to_the_protocol_and_never_see_the_papers_numbers(study):
    module = importlib.import_module(f"experiments.studies.{study}")
    if "EXPERIMENTS" in vars(module):
        for experiment in module.EXPERIMENTS.values():
            assert issubclass(experiment.settings, Settings)
    source = Path(module.__file__)
    sources = source.parent.rglob("*.py") if source.name == "__init__.py" else [source]
    assert not [path for path in sources if "paper_values" in path.read_text()]


def assert_sentence(caught, words):
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith((".", "?"))
    missing = [word for word in words if word not in message]
    assert not missing, message
