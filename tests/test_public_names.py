"""The public names: complete, documented, and none of them hides a subpackage."""

import inspect
import pkgutil

import pytest

import jaxbnn

# The command is no name to import.
SUBPACKAGES = [
    module.name
    for module in pkgutil.iter_modules(jaxbnn.__path__)
    if module.name not in ("__main__", "cli")
]


def _public():
    for name in jaxbnn.__all__:
        yield "jaxbnn", name, getattr(jaxbnn, name)
    for package in SUBPACKAGES:
        module = getattr(jaxbnn, package)
        for name in module.__all__:
            yield f"jaxbnn.{package}", name, getattr(module, name)


def test_no_public_function_has_the_name_of_a_subpackage():
    for where, name, value in _public():
        if name in SUBPACKAGES:
            assert inspect.ismodule(value), f"{where}.{name} hides a subpackage"


def test_every_subpackage_is_reached_from_the_top():
    assert set(SUBPACKAGES) <= set(jaxbnn.__all__)


def test_all_is_sorted_and_whole():
    assert list(jaxbnn.__all__) == sorted(jaxbnn.__all__)
    bound = {
        name
        for name, value in vars(jaxbnn).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert bound <= set(jaxbnn.__all__)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(value, id=f"{where}.{name}")
        for where, name, value in _public()
        if inspect.isfunction(value) or inspect.isclass(value)
    ],
)
def test_public_names_are_documented(value):
    assert inspect.getdoc(value)
