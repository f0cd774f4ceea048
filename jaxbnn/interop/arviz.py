"""Draws for ArviZ, and back: `az.summary`, `az.plot_trace`, `az.loo`, `az.compare` on networks.

A parameter is called by its path, `0.w`, and its axes by the layer: `layer0_in`, `layer0_out`; of
several networks in one position, with their keys before: `mean.layer0_in`.
Groups are made with xarray alone, so that ArviZ 0.x, which wants an `InferenceData`, and ArviZ 1.x,
which wants an `xarray.DataTree`, get the same ones.
"""

import copy
import json
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import DictKey, SequenceKey, keystr, tree_leaves_with_path
from jaxtyping import PRNGKeyArray, PyTree

from jaxbnn.diagnostics import evaluate
from jaxbnn.diagnostics.functions import check_positions
from jaxbnn.interop.arviz_model import as_whole, model_groups
from jaxbnn.interop.numpyro_model import ModelPosterior
from jaxbnn.numerics.arguments import check_key, check_word
from jaxbnn.prediction.families import sample_law
from jaxbnn.sampling.trees import describe, rebuild
from jaxbnn.targets import CrossEntropy, Posterior

_STRUCTURE = "jaxbnn_structure"
# ArviZ's conventional names for what kernels call otherwise.
_STATS = {"is_divergent": "diverging", "num_integration_steps": "n_steps"}


def to_arviz(
    draws: Any,
    posterior: Any = None,
    *,
    key: PRNGKeyArray | None = None,
    coords: Mapping[str, Sequence] | None = None,
    batch_size: int = 64,
    format: str = "auto",
) -> Any:
    """Return draws as ArviZ reads them.

    Parameters
    ----------
    draws
        What `jaxbnn.sample` returns, or a PyTree of positions with leaves (chain, draw, ...).
    posterior
        The `Posterior` that was sampled. It gives the groups `log_likelihood` (one number a datum,
        which `az.loo` and `az.compare` need: of y (n, k > 1) that of a row's k numbers jointly, so
        that `az.loo_pit` has no terms for each; else laid out as y is), `observed_data`,
        `constant_data`, and "lp", the log density, in `sample_stats`. Without it "lp" is the
        kernel's `logdensity`, if its Info has one, which may lack a constant, another in each chain
        (`log_density_from`); beside the posterior's "lp" it keeps its own name. Of a `tempered` one
        "lp" is the density that was sampled, and `log_likelihood` that of the data, not raised to
        the power; nor has that of `CrossEntropy` its temperature. Or what `posterior_from_numpyro`
        returned: then the groups have a variable for each observed site (but for `numpyro.factor`),
        `posterior` holds latent and deterministic sites' values, and `unconstrained_posterior` the
        positions.
    key
        Gives the group `posterior_predictive`: one simulated y for each draw; needs `posterior`.
        Of a NumPyro model whose data depend on earlier data each is given the observed ones.
    coords
        Names of coordinates, e.g. {"layer0_in": ["age", "height"]}; others are counted.
    batch_size
        Draws whose log likelihood is computed at once.
    format
        "auto": what the installed ArviZ reads, `InferenceData` before version 1, else a
        `DataTree`.

    Returns
    -------
    An `arviz.InferenceData` or an `xarray.DataTree` with the groups named above, `posterior` and,
    from the kernel's Info, `sample_stats`.

    Raises
    ------
    ValueError
        No draws kept; leaves without chain and draw axes; a key without a posterior; coords that
        no dimension has, or of another length.
    TypeError
        A posterior of another kind.
    ImportError
        xarray, or ArviZ where an InferenceData is asked for, is not installed.

    Examples
    --------
    >>> positions = ({"w": np.zeros((4, 100, 2, 3)), "b": np.zeros((4, 100, 3))}, ())
    >>> data = to_arviz(positions, coords={"layer0_in": ["age", "height"]})
    >>> data.posterior["0.w"].dims
    ('chain', 'draw', 'layer0_in', 'layer0_out')
    """
    positions = getattr(draws, "positions", draws)
    chains_and_draws = check_positions("to_arviz", positions)
    if key is not None:
        check_key("key", key)
    if posterior is None and key is not None:
        raise ValueError("a key asks for posterior_predictive, which needs the posterior; give it.")
    stats = _sample_stats(draws, chains_and_draws)
    groups = {"posterior": _by_path(positions)}
    if isinstance(posterior, ModelPosterior):
        of_model, log_density = model_groups(posterior, positions, key, batch_size)
        stats["lp"] = log_density
        if posterior.space == "unconstrained":
            groups["unconstrained_posterior"] = groups["posterior"]
        groups |= of_model
    elif isinstance(posterior, Posterior):
        terms, log_density = _log_likelihood(posterior, positions, batch_size)
        stats["lp"] = log_density
        y = np.asarray(posterior.y)
        columns = ("datum", *(f"y_dim_{i}" for i in range(y.ndim - 1)))
        of_terms: tuple[str, ...] = ("datum",)
        if y.size == len(y):  # ArviZ compares the terms with y, one by one
            terms, of_terms = terms.reshape(*terms.shape[:2], *y.shape), columns
        groups["log_likelihood"] = ({"y": terms}, {"y": of_terms})
        if key is not None:
            simulated = _posterior_predictive(key, posterior, positions, batch_size)
            groups["posterior_predictive"] = ({"y": simulated}, {"y": columns})
        groups["observed_data"] = ({"y": y}, {"y": columns})
        x = np.asarray(posterior.x)
        inputs = ("datum", *(f"x_dim_{i}" for i in range(x.ndim - 1)))
        groups["constant_data"] = ({"x": x}, {"x": inputs})
    elif posterior is not None:
        raise TypeError(
            "posterior must be a Posterior or what posterior_from_numpyro returns, but is of type "
            f"{type(posterior).__name__}; the draws come first."
        )
    elif "logdensity" in stats:
        stats["lp"] = stats.pop("logdensity")
    if stats:
        groups["sample_stats"] = (stats, {name: _stat_dims(name, v) for name, v in stats.items()})
    datasets = _datasets(groups, coords or {})
    structure = _structure(positions)
    if structure is not None:
        datasets[_group_of_positions(datasets)].attrs[_STRUCTURE] = structure
    return _assemble(datasets, format)


def from_arviz(data: Any, like: PyTree = None) -> PyTree:
    """Return the positions that `to_arviz` wrote, also after a trip through a file.

    Parameters
    ----------
    data
        An `InferenceData`, or a `DataTree`, with a `posterior` group.
    like
        A PyTree with the structure of a position, for draws of other origin, or positions with
        nodes other than tuples, lists and dicts; its leaves are not looked at.

    Returns
    -------
    A PyTree of NumPy arrays with leaves (chain, draw, ...): what `predict` takes. Tuples, lists and
    dicts are rebuilt; without a structure, a dict by variable.

    Raises
    ------
    ValueError
        No posterior group, or a variable of `like` is not in it; a variable without chain and draw
        among its dimensions.

    Examples
    --------
    >>> positions = ({"w": np.zeros((2, 5, 3))}, ())
    >>> from_arviz(to_arviz(positions))[0]["w"].shape
    (2, 5, 3)
    """
    try:
        group = data[_group_of_positions(data)]
    except KeyError:
        raise ValueError("the data have no posterior group; pass what to_arviz returns.") from None
    if like is not None:
        names = [_name(path) for path, _ in tree_leaves_with_path(like)]
        missing = [name for name in names if name not in group]
        if missing:
            raise ValueError(
                f"the posterior group has no variable {missing[0]!r}; its variables are "
                f"{', '.join(map(str, group.data_vars))}."
            )
        return jax.tree.unflatten(jax.tree.structure(like), [_leaf(group, name) for name in names])
    if _STRUCTURE not in group.attrs:
        return {str(name): _leaf(group, name) for name in group.data_vars}
    return _restored(group.attrs[_STRUCTURE], group)


def _group_of_positions(data: Any) -> str:
    name = "unconstrained_posterior"
    return name if name in data else "posterior"


def _by_path(positions: PyTree) -> tuple[dict, dict]:
    """Return the leaves of positions by name, and their dimensions behind chain and draw."""
    values, dims = {}, {}
    leaves = tree_leaves_with_path(positions)
    of_layers = [_layer_dims(path, np.ndim(leaf) - 2) for path, leaf in leaves]
    networks = {_network(path) for (path, _), own in zip(leaves, of_layers, strict=True) if own}
    for (path, leaf), own in zip(leaves, of_layers, strict=True):
        name = _name(path)
        if name in values:
            raise ValueError(
                f"two parameters of the positions would both be called {name!r}; give one of them "
                "a key without dots."
            )
        values[name] = _readable(leaf)
        dims[name] = tuple(f"{name}_dim_{i}" for i in range(np.ndim(leaf) - 2))
        if own:  # of several networks each has its own axes
            before = _network(path) if len(networks) > 1 else ""
            dims[name] = tuple(before + axis for axis in own)
    return values, dims


def _name(path: tuple) -> str:
    return keystr(path, simple=True, separator=".") or "x"


def _network(path: tuple) -> str:
    """Name what a layer is of, by all keys before its own arrays' but the places in tuples."""
    before = [entry for entry in path[:-1] if not isinstance(entry, SequenceKey)]
    return "".join(f"{keystr((entry,), simple=True)}." for entry in before)


def _layer_dims(path: tuple, rank: int) -> tuple[str, ...]:
    """Name a layer's axes, the layer by its place in a tuple or list; () of other parameters."""
    layers = [entry.idx for entry in path if isinstance(entry, SequenceKey)]
    kind: Any = path[-1].key if path and isinstance(path[-1], DictKey) else None
    axes = {("w", 2): ("in", "out"), ("b", 1): ("out",), ("w", 4): ("row", "column", "in", "out")}
    if not layers or (kind, rank) not in axes:
        return ()
    return tuple(f"layer{'.'.join(map(str, layers))}_{axis}" for axis in axes[kind, rank])


def _sample_stats(draws: Any, shape: tuple[int, int]) -> dict[str, np.ndarray]:
    stats = {}
    for path, leaf in tree_leaves_with_path(getattr(draws, "infos", None)):
        values = _readable(leaf)
        if values.shape[:2] == shape:
            name = _name(path)
            stats[_STATS.get(name, name)] = values
    return stats


def _readable(leaf: Any) -> np.ndarray:
    """Return an array of NumPy; bfloat16, which NumPy takes for bytes, as float32."""
    array = np.asarray(leaf)
    is_foreign = array.dtype.kind == "V" and jnp.issubdtype(array.dtype, jnp.floating)
    return array.astype(np.float32) if is_foreign else array


def _stat_dims(name: str, values: np.ndarray) -> tuple[str, ...]:
    return tuple(f"{name}_dim_{i}" for i in range(values.ndim - 2))


def _log_likelihood(posterior: Any, positions: PyTree, batch_size: int) -> tuple:
    def one(position):
        return untempered.log_likelihood(position), posterior.log_prior(position)

    # ArviZ judges predictions, and the power is none of the data's.
    untempered = copy.copy(posterior)
    object.__setattr__(untempered, "likelihood_power", None)
    power = 1.0 if posterior.likelihood_power is None else float(posterior.likelihood_power)
    # In float64 from here on: ArviZ adds them up, over data and over draws.
    terms, log_prior = (
        np.asarray(a, float) for a in evaluate(one, positions, batch_size=batch_size)
    )
    log_density = power * terms.sum(axis=-1) + log_prior
    if isinstance(posterior.likelihood, CrossEntropy):
        terms = terms * 2 * np.asarray(posterior.likelihood.temperature, float)
    return terms, log_density


def _posterior_predictive(
    key: PRNGKeyArray, posterior: Any, positions: PyTree, batch_size: int
) -> np.ndarray:
    def one(key_and_position):
        draw_key, position = key_and_position
        return sample_law(posterior.predictive(position, posterior.x), draw_key)

    keys = jax.random.split(key, jax.tree.leaves(positions)[0].shape[:2])
    drawn = np.asarray(evaluate(one, (keys, positions), batch_size=batch_size))
    law = posterior.predictive(jax.tree.map(lambda leaf: leaf[0, 0], positions), posterior.x)
    return as_whole(drawn) if law.support.is_discrete else drawn


def _datasets(groups: dict, coords: Mapping[str, Sequence]) -> dict[str, Any]:
    try:
        import xarray
    except ImportError as error:
        raise ImportError(
            "to_arviz needs xarray, which comes with ArviZ; run `pip install 'jaxbnn[arviz]'`."
        ) from error
    all_dims = {dim for _, dims in groups.values() for names in dims.values() for dim in names}
    unknown = sorted(set(coords) - all_dims)
    if unknown:
        raise ValueError(
            f"no parameter has the dimension {unknown[0]!r}; there are {sorted(all_dims)}."
        )
    datasets = {}
    for group, (values, dims) in groups.items():
        leading = () if group in ("observed_data", "constant_data") else ("chain", "draw")
        variables = {name: ((*leading, *dims[name]), value) for name, value in values.items()}
        sizes = {d: n for of, v in variables.values() for d, n in zip(of, v.shape, strict=True)}
        wrong = [dim for dim in coords if dim in sizes and len(coords[dim]) != sizes[dim]]
        if wrong:
            raise ValueError(
                f"coords[{wrong[0]!r}] needs {sizes[wrong[0]]} names, but has "
                f"{len(coords[wrong[0]])}."
            )
        labels = {dim: list(coords.get(dim, range(size))) for dim, size in sizes.items()}
        datasets[group] = xarray.Dataset(
            variables, coords=labels, attrs={"inference_library": "jaxbnn"}
        )
    return datasets


def _assemble(datasets: dict[str, Any], format: str) -> Any:
    check_word("format", format, ("auto", "InferenceData", "DataTree"))
    arviz: Any = None
    if format != "DataTree":
        try:
            import arviz
        except ImportError:
            arviz = None
    # Asked by version: ArviZ 1 answers to the old name, with a warning and another class.
    if arviz is not None and int(arviz.__version__.split(".")[0]) < 1:
        return arviz.InferenceData(**datasets)
    if format == "InferenceData":
        raise ImportError("an InferenceData needs ArviZ before version 1; take format='DataTree'.")
    import xarray

    return xarray.DataTree.from_dict(datasets)


def _structure(positions: PyTree) -> str | None:
    """Describe the containers and name the leaves, in JSON; None if they can't be rebuilt."""
    description = describe(positions)
    names = [_name(path) for path, _ in tree_leaves_with_path(positions)]
    structures: list[Any] = [
        jax.tree.structure(t) for t in (positions, rebuild(description, names))
    ]
    if structures[0] != structures[1]:
        return None
    return json.dumps({"containers": description, "names": names})


def _restored(structure: str, group: Any) -> PyTree:
    described = json.loads(structure)
    leaves = [_leaf(group, name) for name in described["names"]]
    return rebuild(described["containers"], leaves)


def _leaf(group: Any, name: Any) -> np.ndarray:
    """Return a variable with its axes in our order, whatever was done to the group."""
    variable = group[name]
    missing = [dim for dim in ("chain", "draw") if dim not in variable.dims]
    if missing:
        raise ValueError(
            f"{str(name)!r} has no dimension {missing[0]!r}, only {tuple(variable.dims)}; keep "
            "chains and draws apart, and choose one by a list, as in sel(chain=[0])."
        )
    return np.asarray(variable.transpose("chain", "draw", ...).values)
