"""Figure 4: time to propagate a batch through one d x d layer, by every method.

Propagation: h = relu(a), then h W + b. For DVI, a comes with a full covariance matrix. For MCVI, S
draws of W and b are made and applied to S draws of a; for rMCVI (figure 7b) S draws of the new a.
"""

import functools
import statistics
import time
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from pydantic import Field

from experiments.studies.deterministic_vi import pictures
from experiments.study import Context, Row, Settings
from jaxbnn import dvi

Program = Callable[[], None]

# What is compared, and how many times as long the first may take, where there is a limit.
PAIRS: dict[tuple[str, str], float | None] = {
    ("DVI", "DVI, asymptotic"): 3.0,
    ("dDVI", "MCVI, S = 2"): 1.0,
    ("dDVI", "MCVI, S = 1"): None,
    ("DVI", "MCVI, S = 300"): None,
}


class RuntimeSettings(Settings):
    """The sizes, the batch, the methods of the table, and how much memory a program may take."""

    sizes: tuple[int, ...]
    compared_sizes: tuple[int, ...] = ()  # of which the numbers of samples of equal time are meant
    batch_size: int = Field(default=10, ge=1)
    samples: tuple[int, ...] = (1, 2, 10, 100, 300)
    num_nodes: int = Field(8, ge=1)
    num_rounds: int = Field(5, ge=1)
    seconds: float = Field(default=0.1, gt=0)  # of one measurement, about
    memory_gb: float = Field(2.0, gt=0)  # a program that would need more is left out
    with_local: bool = True


def run_runtime(settings: RuntimeSettings, context: Context) -> list[Row]:
    """Time every method at every size; a stage a size."""
    rows: list[Row] = []
    curves: dict[str, dict[int, float]] = {}
    for size in settings.sizes:
        found = context.stage(f"d_{size}", functools.partial(measure, size, settings))
        for name, times in found.items():
            curves.setdefault(name, {})[size] = float(statistics.median(times))
        rows += rows_of(size, found)
    context.save_figure("figure_4", pictures.runtime_figure(curves))
    return rows + limit_rows(rows) + equal_time_rows(curves, settings)


def rows_of(size: int, found: dict) -> list[Row]:
    """Return milliseconds of every method, and the ratios that matter, paired by round."""
    rows = [
        Row("milliseconds", f"{name}, d = {size}", 1000 * statistics.median(times))
        for name, times in found.items()
    ]
    for above, below in PAIRS:
        if above in found and below in found:
            ratios = [float(a / b) for a, b in zip(found[above], found[below], strict=True)]
            setting = f"{above} over {below}, d = {size}"
            rows.append(Row("time_ratio", setting, statistics.median(ratios)))
    return rows


def limit_rows(rows: list[Row]) -> list[Row]:
    """Return, of each comparison that has a limit, its largest ratio over all sizes."""
    found = []
    for (above, below), limit in PAIRS.items():
        begin = f"{above} over {below}, d = "
        ratios = [row.value for row in rows if row.setting.startswith(begin)]
        if limit is not None and ratios:
            setting = f"{above} over {below}, all d; at most {limit:g}"
            found.append(Row("largest_time_ratio", setting, max(ratios)))
    return found


def equal_time_rows(
    curves: Mapping[str, Mapping[int, float]], settings: RuntimeSettings
) -> list[Row]:
    """Return with how many samples MCVI takes as long as DVI and dDVI, and rMCVI as long as MCVI.

    Means of logarithms over the sizes, and their errors by the spread over sizes, which is more
    than that over repetitions: the paper's are rules for sizes of practical relevance. A size at
    which no number of samples is as quick is left out. Theirs are of a graphics processor, ours of
    the machine that runs this.
    """
    rule, ratio = "equivalent_mcvi_samples", "sample_ratio"
    many = max(settings.samples)
    cells = (
        (rule, "runtime of DVI, Tesla V100", "002 Section 3.1.1", "DVI", "MCVI", 1),
        (rule, "runtime of dDVI, Tesla V100", "002 Section 3.1.1", "dDVI", "MCVI", 1),
        (ratio, "rMCVI over MCVI at equal runtime", "002 Figure 7", f"MCVI, S = {many}", "rMCVI",
         many),
    )  # fmt: skip
    rows = []
    for quantity, setting, source, timed, drawn, unit in cells:
        found = []
        for size in settings.compared_sizes:
            names = {samples: f"{drawn}, S = {samples}" for samples in settings.samples}
            times = {s: curves[n][size] for s, n in names.items() if size in curves.get(n, {})}
            if size in curves.get(timed, {}) and len(times) > 1:
                samples = samples_of_equal_time(curves[timed][size], times)
                found += [] if samples is None else [samples / unit]
        if len(found) > 1:
            logs = np.log(found)
            mean = float(np.exp(logs.mean()))
            error = mean * float(logs.std(ddof=1)) / len(logs) ** 0.5
            rows.append(Row(quantity, setting, mean, error, source))
    return rows


def samples_of_equal_time(seconds: float, of_samples: Mapping[int, float]) -> float | None:
    """Return at how many samples a time is reached, the time's line in samples fitted; or None.

    Examples
    --------
    >>> round(samples_of_equal_time(7.0, {1: 3.0, 2: 4.0, 10: 12.0}), 6)  # 2 + S
    5.0
    >>> samples_of_equal_time(1.0, {1: 3.0, 2: 4.0, 10: 12.0}) is None  # quicker than none
    True
    """
    counts = np.array(sorted(of_samples), float)
    times = np.array([of_samples[int(s)] for s in counts])
    # Relative errors count: the longest time is that of hundreds of samples.
    slope, start = np.polyfit(counts, times, 1, w=1 / times)
    return float((seconds - start) / slope) if slope > 0 and seconds > start else None


def measure(size: int, settings: RuntimeSettings) -> dict[str, list[float]]:
    """Return seconds of one propagation, a number a round; the methods take turns in each round."""
    programs = {
        name: program
        for name, (program, gigabytes) in _programs(size, settings).items()
        if gigabytes <= settings.memory_gb
    }
    counts = {}
    for name, program in programs.items():
        program()  # compiles
        counts[name] = max(1, round(settings.seconds / max(_seconds(program, 1), 1e-6)))
    times: dict[str, list[float]] = {name: [] for name in programs}
    for turn in range(settings.num_rounds):
        for name in programs if turn % 2 else reversed(programs):
            times[name].append(_seconds(programs[name], counts[name]))
    return times


def _seconds(program: Program, count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        program()
    return (time.perf_counter() - start) / count


def _programs(size: int, settings: RuntimeSettings) -> dict[str, tuple[Program, float]]:
    """Return what is timed, and an estimate of the memory it takes."""
    batch = settings.batch_size
    keys = jax.random.split(jax.random.key(0), 4)
    weights = jax.random.normal(keys[0], (size, size)) / size**0.5
    deviation = jnp.full((size, size), 0.1 / size**0.5)
    mean = jax.random.normal(keys[1], (batch, size))
    # A covariance with correlations of all sizes, positive definite.
    factor = jax.random.normal(keys[2], (size, 4)) / 2
    covariance = factor @ factor.T + 0.5 * jnp.eye(size)
    inputs = dvi.GaussianMoments(
        mean,
        jnp.broadcast_to(jnp.diagonal(covariance), (batch, size)),
        jnp.broadcast_to(covariance, (batch, size, size)),
    )
    diagonal = inputs._replace(covariance=None)
    matrices = 4e-9 * batch * size**2
    found = {}

    def add(name: str, function: Callable, *arguments, gigabytes: float = 0.0) -> None:
        program = jax.jit(function)
        found[name] = (lambda: _block(program(*arguments)), gigabytes)

    for label, rule in (("DVI", "exact"), ("DVI, asymptotic", "asymptotic")):

        def through(moments, weights, deviation, rule=rule):
            nodes = settings.num_nodes if rule == "exact" else None
            return _layer(moments, weights, deviation, rule, nodes)

        add(label, through, inputs, weights, deviation, gigabytes=6 * matrices)
    add(
        "dDVI",
        lambda moments, weights, deviation: _layer(moments, weights, deviation, "exact", None),
        diagonal,
        weights,
        deviation,
    )
    for samples in settings.samples:
        draws = jax.random.normal(keys[3], (samples, batch, size))
        large = 8e-9 * samples * size**2
        arguments = (keys[0], draws, weights, deviation)
        add(f"MCVI, S = {samples}", _by_weights, *arguments, gigabytes=large)
        if settings.with_local:
            add(f"rMCVI, S = {samples}", _by_activations, *arguments)
    return found


def _layer(moments, weights, deviation, rule, num_nodes):
    """Return mean, variance and covariance of relu(a) W: equation (3) for independent weights."""
    h, _ = dvi.activation_moments("relu", moments, rule=rule, num_nodes=num_nodes)
    assert h.variance is not None
    mean = _dot(h.mean, weights)
    second = h.variance + jnp.square(h.mean)
    of_weights = _dot(second, jnp.square(deviation))
    if h.covariance is None:
        return mean, of_weights + _dot(h.variance, jnp.square(weights))
    # (batch d) x d times d x d, twice: cubic in d.
    half = jnp.einsum("nij,jk->nik", h.covariance, weights, precision="highest")
    full = jnp.einsum("nik,il->nlk", half, weights, precision="highest")
    return mean, full + of_weights[:, :, None] * jnp.eye(full.shape[1])


def _by_weights(key, draws, weights, deviation):
    noise = jax.random.normal(key, (len(draws), *weights.shape))
    drawn = weights[None] + deviation[None] * noise
    return jnp.einsum("sni,sij->snj", jax.nn.relu(draws), drawn, precision="highest")


def _by_activations(key, draws, weights, deviation) -> Float[Array, "s n d"]:
    h = jax.nn.relu(draws)
    mean = jnp.einsum("sni,ij->snj", h, weights, precision="highest")
    variance = jnp.einsum("sni,ij->snj", jnp.square(h), jnp.square(deviation), precision="highest")
    return mean + jnp.sqrt(variance) * jax.random.normal(key, mean.shape)


def _dot(a, b):
    return jnp.matmul(a, b, precision="highest")


def _block(result) -> None:
    jax.block_until_ready(result)
