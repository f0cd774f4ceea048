"""Validation of functions, keys and flags, how a sentence names a value, and results kept."""

import functools
import inspect
from collections.abc import Callable, Collection, Iterable
from typing import Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def kept(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Return the function with its last 64 results kept, by what it was called with.

    So a second call makes the same object, whose program is compiled already. Of arguments that
    have no hash nothing is kept: what is wrong with them the function says itself.

    Examples
    --------
    >>> make = kept(lambda x: [x])
    >>> make(1) is make(1), make([1]) is make([1])
    (True, False)
    """
    by_hash: Any = functools.lru_cache(maxsize=64)(function)

    @functools.wraps(function)
    def call(*args: Arguments.args, **options: Arguments.kwargs) -> Result:
        try:
            hash((args, tuple(options.values())))
        except TypeError:
            return function(*args, **options)
        return by_hash(*args, **options)

    return call


def check_function(name: str, value: Any, advice: str, num_arguments: int = 1) -> None:
    """Raise TypeError unless `value` is a function of so many arguments, but not a distribution.

    Parameters
    ----------
    name
        What the function is called in the caller's signature.
    value
        Anything. NumPyro's distributions can be called, but are never what is asked for.
    advice
        What to give instead; it ends the sentence.
    num_arguments
        With how many positional arguments it will be called.

    Raises
    ------
    TypeError
        Not a function, or one that wants more or fewer arguments.

    Examples
    --------
    >>> check_function("log_density_fn", 0.5, "give a function of the position")
    Traceback (most recent call last):
    TypeError: log_density_fn must be a function, but is a float; give a function of the position.
    """
    if not callable(value) or hasattr(value, "log_prob"):
        raise TypeError(f"{name} must be a function, but is {a_or_an(value)}; {advice}.")
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):  # written in C, and silent about its arguments
        return
    try:
        signature.bind(*(None,) * num_arguments)
    except TypeError as error:
        count = f"{num_arguments} argument" + ("" if num_arguments == 1 else "s")
        raise TypeError(f"{name} is called with {count}, but {error}; {advice}.") from None


def check_key(name: str, key: Any, advice: str = "write jax.random.key(0)") -> None:
    """Raise unless `key` is one key of `jax.random`, typed or of the old kind.

    Parameters
    ----------
    name
        What the key is called in the caller's signature.
    key
        Anything; traced keys have a dtype too.
    advice
        What to give instead; it ends the sentence.

    Raises
    ------
    TypeError
        Not a key.
    ValueError
        Several keys; words of an old key that are not as many as those of JAX's default
        implementation.

    Examples
    --------
    >>> check_key("rng_key", 0)
    Traceback (most recent call last):
    TypeError: rng_key must be a key, but is an int; write jax.random.key(0).
    """
    dtype = getattr(key, "dtype", None)
    is_typed = dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)
    is_old = dtype == np.uint32 and np.ndim(key) > 0
    if not (is_typed or is_old):
        raise TypeError(f"{name} must be a key, but is {a_or_an(key)}; {advice}.")
    if np.ndim(key) != (0 if is_typed else 1):
        raise ValueError(
            f"{name} must be one key, but is an array of them, of the shape {np.shape(key)}; take "
            "one, or map over them by jax.vmap."
        )
    if is_old:
        check_words(name, key)


def check_no_key(must: str, value: Any) -> None:
    """Raise TypeError where a key is given for something else, which NumPy would refuse.

    Parameters
    ----------
    must
        What is asked for, the beginning of the sentence.
    value
        Anything.

    Examples
    --------
    >>> check_no_key("draws must be an array", jax.random.key(0))
    Traceback (most recent call last):
    TypeError: draws must be an array, but a key was given.
    """
    if a_or_an(value) == "a key":
        raise TypeError(f"{must}, but a key was given.")


def check_words(name: str, key: Any) -> None:
    """Raise ValueError unless an old key has the words of JAX's default implementation.

    Examples
    --------
    >>> check_words("key", np.zeros(4, np.uint32))
    Traceback (most recent call last):
    ValueError: key is raw and has 4 words, but those of JAX's default implementation have 2; ...
    """
    words = np.shape(key)[0]
    expected = jax.eval_shape(lambda: jax.random.key_data(jax.random.key(0))).shape[0]
    if words == expected:
        return
    implementations = {2: "threefry2x32", 4: "rbg"}
    advice = "write jax.random.key(0)"
    if words in implementations:
        advice = f'give jax.random.wrap_key_data(key, impl="{implementations[words]}")'
    raise ValueError(
        f"{name} is raw and has {words} words, but those of JAX's default implementation have "
        f"{expected}; {advice}."
    )


def typed_key(key: Any) -> Any:
    """Return a key of either kind as a typed one, by which it draws the same numbers.

    NumPyro's distributions take no old keys but those of two words.
    """
    is_typed = jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    return key if is_typed else jax.random.wrap_key_data(key)


def check_flag(name: str, value: Any) -> None:
    """Raise TypeError unless `value` is True or False.

    Examples
    --------
    >>> check_flag("bias of Dense", "relu")
    Traceback (most recent call last):
    TypeError: bias of Dense must be True or False, but is 'relu'.
    """
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, but is {short(value)}.")


def check_word(name: str, value: Any, words: Collection[str], advice: str = "") -> None:
    """Raise ValueError unless `value` is one of the words.

    Parameters
    ----------
    name
        What it is called in the caller's signature.
    value
        Anything.
    words
        Two or more.
    advice
        Ends the sentence.

    Examples
    --------
    >>> check_word("order", "backwards", ("parallel", "backward"), "; see gibbs_sampler")
    Traceback (most recent call last):
    ValueError: order must be 'parallel' or 'backward', but is 'backwards'; see gibbs_sampler.
    """
    if not isinstance(value, str) or value not in words:
        *first, last = map(repr, words)
        raise ValueError(
            f"{name} must be {', '.join(first)} or {last}, but is {short(value)}{advice}."
        )


def check_type(name: str, value: Any, kind: type, advice: str) -> None:
    """Raise TypeError unless `value` is of a class.

    Examples
    --------
    >>> check_type("draws", 3, dict, "give what sample returns")
    Traceback (most recent call last):
    TypeError: draws must be a dict, but is an int; give what sample returns.
    """
    if not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "AEIOUaeiou" else "a"
        raise TypeError(
            f"{name} must be {article} {kind.__name__}, but is {a_or_an(value)}; {advice}."
        )


def check_optimizer(value: Any, position: Any = None) -> None:
    """Raise TypeError unless `value` is an optimizer of Optax that does with gradients.

    Whether it does is tried at `position`, if one is given, by shapes only.

    Examples
    --------
    >>> check_optimizer("adam")
    Traceback (most recent call last):
    TypeError: optimizer must be one of Optax, such as optax.adam(1e-3), but is 'adam'.
    """
    if not (hasattr(value, "init") and hasattr(value, "update")):
        raise TypeError(
            f"optimizer must be one of Optax, such as optax.adam(1e-3), but is {short(value)}."
        )
    if position is None:
        return
    try:
        jax.eval_shape(lambda p: value.update(p, value.init(p), p), position)
    except TypeError as error:
        raise TypeError(
            "optimizer must do with gradients, its state and the position, "
            f"update(gradients, state, position), but this one fails there: {error!s:.200}."
        ) from None


def check_progress(value: Any) -> None:
    """Raise TypeError unless `value` is True, False or a function of one argument.

    Examples
    --------
    >>> check_progress("no")
    Traceback (most recent call last):
    TypeError: progress must be True, False or a function of the progress, but is 'no'.
    """
    if callable(value):
        check_function("progress", value, "give progress -> None")
    elif not isinstance(value, bool | np.bool_):
        raise TypeError(
            f"progress must be True, False or a function of the progress, but is {short(value)}."
        )


def as_names(names: Any) -> list[str]:
    """Return the names of coordinates as a list; a word is one name.

    Examples
    --------
    >>> as_names("weight"), as_names(range(2))
    (['weight'], ['0', '1'])
    """
    if isinstance(names, str):
        return [names]
    if not isinstance(names, Iterable):
        raise TypeError(
            f"names must be a list of words, one for each coordinate, but is {a_or_an(names)}."
        )
    return [str(name) for name in names]


def a_or_an(value: Any) -> str:
    """Return the name of a value's type with its article, for a sentence.

    Examples
    --------
    >>> a_or_an(1), a_or_an((1,))
    ('an int', 'a tuple')
    """
    dtype = getattr(value, "dtype", None)
    if dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key):
        return "a key"
    if isinstance(value, jax.Array | np.ndarray):
        return "an array"
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def short(value: Any, length: int = 40) -> str:
    """Return a value's repr on one line, cut where it is long, for a sentence.

    Examples
    --------
    >>> short([1] * 1000, 9)
    '[1, 1, 1,...'
    """
    text = " ".join(repr(value).split())
    return text if len(text) <= length else f"{text[:length]}..."
