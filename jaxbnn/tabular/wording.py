"""How sentences name a setting: as an option of the command, or as an argument in Python."""

from collections.abc import Callable

Spelling = Callable[..., str]


def as_option(name: str, value: object = None) -> str:
    """Return a setting as the command takes it.

    Examples
    --------
    >>> as_option("prior_scale"), as_option("sampler", "nuts")
    ('--prior-scale', '--sampler nuts')
    """
    option = f"--{name.replace('_', '-')}"
    return option if value is None else f"{option} {value}"


def as_argument(name: str, value: object = None) -> str:
    """Return a setting as a call in Python takes it.

    Examples
    --------
    >>> as_argument("prior_scale"), as_argument("sampler", "nuts")
    ('prior_scale', "sampler='nuts'")
    """
    name = "random_state" if name == "seed" else name  # scikit-learn's word
    return name if value is None else f"{name}={value!r}"
