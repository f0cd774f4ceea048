"""The front page's examples run as they are printed."""

import re
from pathlib import Path

import numpy as np
import pytest

README = Path(__file__).parents[1] / "README.md"


@pytest.mark.third_party(reason="BlackJAX's MALA promotes ranks; users run without strict checks")
def test_examples_of_the_front_page_run(capsys):
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    assert len(blocks) == 2
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
