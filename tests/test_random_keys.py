"""No random key is used twice: `fold_in(key, i)` is `split(key)[i]`, not a key of its own."""

import ast
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxbnn import Gaussian, IntermediateNoise, Posterior, dvi, mlp, normal_prior, pcn
from jaxbnn.networks import init

ROOT = Path(__file__).parents[1]
# Counters that no split reaches.
_FAR = "_REFRESH_COUNTER"


def test_a_folded_key_is_one_of_those_of_a_split():
    key = jax.random.key(7)
    folded = jax.random.key_data(jax.random.fold_in(key, 1))
    np.testing.assert_array_equal(folded, jax.random.key_data(jax.random.split(key, 5)[1]))


NETWORK = mlp((2, 2, 1))
MODEL = IntermediateNoise(NETWORK, 0.1)
POSTERIOR = Posterior(NETWORK, normal_prior(NETWORK), Gaussian(1.0), np.ones((3, 2)), np.ones(3))
WITH_A_KEY = {
    "init": lambda key: init(key, NETWORK),
    "sample_prior": lambda key: POSTERIOR.sample_prior(key, (2,)),
    "gibbs": MODEL.sample_prior,
    "dvi": lambda key: dvi.initial_position(key, NETWORK),
    "pcn": lambda key: pcn(jnp.sum, 0.5).step(key, pcn(jnp.sum, 0.5).init(jnp.ones(2))),
}


@pytest.mark.usefixtures("annotations_unchecked")
@pytest.mark.parametrize("name", WITH_A_KEY)
def test_one_key_is_asked_for_by_one_sentence(name):
    keys = jax.random.split(jax.random.key(0), 3)
    for many in (keys, jax.random.key_data(keys)):
        with pytest.raises(ValueError, match="must be one key, but is an array of them"):
            WITH_A_KEY[name](many)
    raw = jax.random.key_data(jax.random.key(0, impl="rbg"))
    with pytest.raises(ValueError, match=r"raw and has 4 words, .* impl=.rbg."):
        WITH_A_KEY[name](raw)
    with pytest.raises(ValueError, match="raw and has 3 words"):
        WITH_A_KEY[name](jnp.zeros(3, jnp.uint32))


@pytest.mark.parametrize("name", WITH_A_KEY)
def test_old_keys_serve_as_the_typed_ones_do(name):
    for impl in ("threefry2x32", "rbg"):
        with jax.default_prng_impl(impl):
            key = jax.random.key(3)
            typed, raw = (WITH_A_KEY[name](k) for k in (key, jax.random.key_data(key)))
        for one, other in zip(jax.tree.leaves(typed), jax.tree.leaves(raw), strict=True):
            np.testing.assert_array_equal(one, other)


def used_twice(source: str) -> list[str]:
    """Return `function: key` for keys that are folded and, in the same function, also passed on."""
    found = []
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef):
            calls = [node for node in _own(function) if isinstance(node, ast.Call)]
            folded = {
                call.args[0].id
                for call in calls
                if _is_fold(call) and isinstance(call.args[0], ast.Name) and not _is_far(call)
            }
            passed = {
                argument.id
                for call in calls
                if not _is_fold(call) and not _is_check(call)
                for argument in [*call.args, *(keyword.value for keyword in call.keywords)]
                if isinstance(argument, ast.Name)
            }
            rebound = {
                target.id
                for node in _own(function)
                if isinstance(node, ast.Assign)
                for target in ast.walk(node.targets[0])
                if isinstance(target, ast.Name)
            }
            arguments = {one.arg for one in function.args.args}
            # After `key, other = split(key)` the argument `key` is another key.
            found += [
                f"{function.name}: {name}"
                for name in sorted(folded & passed)
                if not (name in rebound and name in arguments)
            ]
    return found


def _own(function):
    """Yield the nodes of a function, without those of the functions inside."""
    nodes = list(function.body)
    while nodes:
        node = nodes.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.ClassDef):
            nodes += ast.iter_child_nodes(node)


def _is_fold(call):
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return name == "fold_in" and len(call.args) == 2


def _is_check(call):
    return getattr(call.func, "id", "").startswith("check_")


def _is_far(call):
    return _FAR in ast.unparse(call.args[1])


# The key of one run, or keys one a run already: one of the two, never both.
EITHER_OR = {"jaxbnn/dvi/fit_input.py": ["one_key_a_run: rng_key"]}


@pytest.mark.parametrize("package", ["jaxbnn", "experiments"])
def test_no_key_is_folded_and_passed_on(package):
    found = {
        str(path.relative_to(ROOT)): twice
        for path in sorted((ROOT / package).rglob("*.py"))
        if (twice := used_twice(path.read_text(encoding="utf-8")))
    }
    assert {path: twice for path, twice in found.items() if EITHER_OR.get(path) != twice} == {}


@pytest.mark.parametrize(
    ("body", "is_found"),
    [
        ("train(key)\n    score(jax.random.fold_in(key, 1))", True),
        ("a, b = jax.random.split(key)\n    score(jax.random.fold_in(key, 1))", True),
        ("train(key=key)\n    score(fold_in(key, number))", True),
        ("key, b = jax.random.split(key)\n    score(jax.random.fold_in(key, 1))", False),
        ("step(key)\n    score(jax.random.fold_in(key, jnp.uint32(_REFRESH_COUNTER)))", False),
        ('check_key("key", key)\n    score(jax.random.fold_in(key, 1))', False),
        ("return [jax.random.fold_in(key, i) for i in range(3)]", False),
    ],
)
def test_what_is_found(body, is_found):
    assert bool(used_twice(f"def f(key):\n    {body}\n")) == is_found
