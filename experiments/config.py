"""Config files: read, merged with the scale and the command line, and validated.

A config is data only. Its top-level keys `study`, `name`, `description`, `seed`,
`experiment` and `one_core_programs` (see threads.py) say what is run; the tables [smoke],
[desk] and [paper] override, each for its scale, the remaining keys, which are the
experiment's settings: tables are merged, anything else, arrays too, is replaced. Whatever is
wrong ends in one sentence that names the key and the file (InputError).
"""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from experiments.errors import InputError, did_you_mean
from experiments.study import Settings

SCALES = ("smoke", "desk", "paper")
HEAD = ("study", "name", "experiment", "description", "seed", "one_core_programs")
KINDS = {"seed": (int, "an integer"), "one_core_programs": (bool, "true or false")}

# A dotted key, split, and its value.
Assignment = tuple[tuple[str, ...], Any]
SettingsType = TypeVar("SettingsType", bound=Settings)


@dataclass(frozen=True)
class Config:
    """One config file: what it says of itself, its settings, and the scales' overrides."""

    path: Path
    study: str
    name: str
    experiment: str
    description: str
    seed: int
    one_core_programs: bool
    settings: Mapping[str, Any]
    overrides: Mapping[str, Mapping[str, Any]]

    @property
    def scales(self) -> tuple[str, ...]:
        """The scales that the file holds."""
        return tuple(scale for scale in SCALES if scale in self.overrides)


def read_config(path: Path) -> Config:
    """Read a config file and check its head; the settings are checked by `settings_for`."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"There is no config file {path}.") from None
    except OSError as error:
        raise InputError(f"The config {path} cannot be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not a TOML file: {error}.") from None

    defaults = {"seed": 0, "one_core_programs": False}
    head = {**defaults, "experiment": content.get("name"), **content}
    for key in HEAD:
        if key not in head or head[key] is None:
            others = [word for word in content if word not in (*HEAD, *SCALES)]
            near = get_close_matches(key, others, n=1)
            hint = f"; is {near[0]!r} meant to be it?" if near else "."
            raise InputError(f"In {path}, the key {key!r} is missing{hint}")
        expected, kind = KINDS.get(key, (str, "a string"))
        if type(head[key]) is not expected:
            raise InputError(f"In {path}, {key!r} must be {kind}, but is {head[key]!r}.")
    check_seed(head["seed"], f"In {path}, 'seed'")
    for key in ("study", "name"):
        # They become folders: nothing that could lead out of the output directory.
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]*", head[key]):
            raise InputError(
                f"In {path}, {key!r} must be letters, digits, '_' and '-' only, "
                f"but is {head[key]!r}."
            )
    for scale in SCALES:
        if not isinstance(content.get(scale, {}), dict):
            raise InputError(f"In {path}, {scale!r} must be a table [{scale}].")
    return Config(
        path=path,
        **{key: head[key] for key in HEAD},
        settings={key: content[key] for key in content if key not in (*HEAD, *SCALES)},
        overrides={scale: content[scale] for scale in SCALES if scale in content},
    )


def check_seed(seed: int, name: str) -> None:
    """Raise InputError unless 0 <= seed < 2^32, which every key implementation takes."""
    if not 0 <= seed < 2**32:
        raise InputError(f"{name} must be between 0 and 2^32 - 1, but is {seed}.")


def parse_assignment(text: str) -> Assignment:
    """Parse `key=value` of --set: a dotted key, a TOML value, else a string.

    Examples
    --------
    >>> parse_assignment("chain.num_samples=1_000")
    (('chain', 'num_samples'), 1000)
    >>> parse_assignment("activation=tanh")
    (('activation',), 'tanh')
    """
    key, separator, value = text.partition("=")
    parts = tuple(part.strip() for part in key.split("."))
    if not separator or not all(parts):
        raise InputError(f"--set takes key=value, as in num_samples=1000, but got {text!r}.")
    try:
        parsed = tomllib.loads(f"value = {value}")
    except tomllib.TOMLDecodeError:
        return parts, value
    # A newline in the value could smuggle in a second key.
    return parts, parsed["value"] if set(parsed) == {"value"} else value


def settings_for(
    config: Config,
    scale: str,
    model: type[SettingsType],
    assignments: Sequence[Assignment] = (),
) -> SettingsType:
    """Return the settings at a scale: the file's, its [scale] table's, then --set's.

    Every scale in the file is validated, so that a slip in [paper] is met before the long
    run; `assignments` apply to the one asked for.
    """
    if scale not in SCALES:
        raise InputError(f"There is no scale {scale!r}, only {', '.join(SCALES)}.")
    if scale not in config.overrides:
        raise InputError(
            f"{config.path} has no table [{scale}], so it cannot be run at scale {scale!r} "
            f"(it has {', '.join(config.scales) or 'none'})."
        )
    for other in config.scales:
        _validated(config, other, model, ())
    return _validated(config, scale, model, assignments)


def _validated(
    config: Config, scale: str, model: type[SettingsType], assignments: Sequence[Assignment]
) -> SettingsType:
    values = _merged(config.settings, config.overrides[scale])
    for keys, value in assignments:
        if keys[0] in (*HEAD, *SCALES):
            advice = "use --seed or --scale" if keys[0] in ("seed", *SCALES) else "edit the file"
            raise InputError(f"--set cannot change {keys[0]!r} of {config.path}; {advice}.")
        _assign(values, keys, value, config.path)
    try:
        # As JSON, because then pydantic's strict mode takes arrays for tuples.
        return model.model_validate_json(json.dumps(values, default=str))
    except ValidationError as error:
        problems = error.errors(include_url=False)
    # A misspelt key is also a missing one; only the misspelling helps.
    problem = min(problems, key=lambda one: one["type"] != "extra_forbidden")
    location = _location(problem["loc"], values)
    place, name = f"In {config.path}", ".".join(location)
    if any(location[: len(keys)] == keys for keys, _ in assignments):
        place = f"In --set for {config.path}"
    elif _holds(config.overrides[scale], location):
        name = f"{scale}.{name}"
    raise InputError(f"{place}, {_complaint(problem, name, scale, model)}")


def _complaint(problem: ErrorDetails, name: str, scale: str, model: type[Settings]) -> str:
    if problem["type"] == "extra_forbidden":
        known = _field_names(model.model_json_schema()) | set(HEAD) | set(SCALES)
        return f"the key {name!r} is unknown" + did_you_mean(name.rpartition(".")[2], known)
    if problem["type"] == "missing":
        return f"the key {name!r} is missing at scale {scale!r}."
    message = problem["msg"].removeprefix("Value error, ").rstrip(".")
    if not name:
        return f"at scale {scale!r}: {message}."
    if message.startswith("Input should"):
        return f"{name!r} is {problem['input']!r} but {message.removeprefix('Input ')}."
    return f"{name!r} is {problem['input']!r}: {message}."


def _location(loc: tuple[int | str, ...], values: Any) -> tuple[str, ...]:
    """Return the key's path, without the names of union members that pydantic puts in it."""
    kept = []
    for depth, part in enumerate(loc):
        inside_list = isinstance(values, list) and isinstance(part, int)
        if inside_list or (isinstance(values, dict) and part in values):
            values = values[part]
        elif depth < len(loc) - 1 or not isinstance(values, dict):
            continue
        kept.append(str(part))
    return tuple(kept)


def _holds(values: Any, location: Sequence[str]) -> bool:
    for part in location:
        if isinstance(values, list):
            return True
        if not isinstance(values, dict) or part not in values:
            return False
        values = values[part]
    return bool(location)


def _field_names(schema: Mapping[str, Any]) -> set[str]:
    models = [schema, *schema.get("$defs", {}).values()]
    return {name for one in models for name in one.get("properties", {})}


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of `base` with the entries of `over` put over it, table by table."""
    merged = {key: _copied(value) for key, value in base.items()}
    for key, value in over.items():
        below = merged.get(key)
        if isinstance(value, dict) and isinstance(below, dict):
            merged[key] = _merged(below, value)
        else:
            merged[key] = _copied(value)
    return merged


def _copied(value: Any) -> Any:
    return _merged(value, {}) if isinstance(value, dict) else value


def _assign(values: dict[str, Any], keys: tuple[str, ...], value: Any, path: Path) -> None:
    for depth, key in enumerate(keys[:-1], start=1):
        values = values.setdefault(key, {})
        if not isinstance(values, dict):
            name = ".".join(keys[:depth])
            raise InputError(f"--set {'.'.join(keys)}: {name!r} of {path} is not a table.")
    values[keys[-1]] = value
