"""The front page's examples run as they are printed."""

import re
from pathlib import Path

import jax
import numpy as np
import numpyro
import pytest

import jaxbnn

README = Path(__file__).parents[1] / "README.md"


@pytest.mark.third_party(reason="BlackJAX's MALA promotes ranks; users run without strict checks")
def test_examples_of_the_front_page_run(capsys):
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    assert len(blocks) == 3
    assert blocks[0].count("\n") <= 14  # ten lines of code, said to be short
    namespace: dict = {}
    exec(compile(blocks[0], "README.md", "exec"), namespace)
    assert "R-hat" in capsys.readouterr().out
    draws = namespace["draws"]
    assert draws.positions[0]["w"].shape == (4, 2000, 2, 5)
    assert 0.2 < draws.acceptance_rate.mean() < 0.99
    exec(compile(blocks[1], "README.md", "exec"), namespace)
    reduced = namespace["draws"].reduced
    mean = reduced["probability"].pooled.mean
    assert mean.shape == (100, 1)
    agrees = (mean[:, 0] > 0.5) == np.asarray(namespace["y"])
    assert agrees.mean() > 0.8  # the network learned something
    assert namespace["draws"].positions is None
    assert abs(namespace["draws"].acceptance_rate.mean() - 0.574) < 0.1


@pytest.mark.third_party(reason="Equinox promotes ranks")
def test_a_module_of_equinox_is_a_network():
    equinox = pytest.importorskip("equinox")
    block = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)[2]
    module = equinox.nn.MLP(2, 1, 3, 1, key=jax.random.key(0))
    x, y = np.ones((4, 2), np.float32), np.array([0, 1, 1, 0])
    names = {"jax": jax, "jaxbnn": jaxbnn, "numpyro": numpyro, "equinox": equinox}
    names |= {"module": module, "x": x, "y": y}
    exec(compile(block, "README.md", "exec"), names)
    assert np.isfinite(names["posterior"].log_density(names["params"]))


def test_what_the_front_page_points_to_is_there():
    """Paths, the command's options, and a picture that is not too large."""
    text = README.read_text()
    for path in re.findall(r"`((?:jaxbnn|experiments|configs)/[\w./-]+)`", text):
        assert (README.parent / path).exists(), path
    for name in re.findall(r"^\| `(\w+\.py)` \|", text, flags=re.MULTILINE):
        assert (README.parent / "experiments" / "guides" / name).is_file(), name
    for target in re.findall(r"\]\(([\w./-]+)\)", text):
        assert (README.parent / target).exists(), target
    (command,) = re.findall(r"python -m experiments (configs/\S+)\n```", text)
    assert (README.parent / command).is_file()
    (picture,) = re.findall(r"!\[[^]]+\]\(([^)]+)\)", text)
    assert 10_000 < (README.parent / picture).stat().st_size < 150_000
