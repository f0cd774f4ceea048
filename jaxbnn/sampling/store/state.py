"""Files such as `state.nc`: the arrays of a run's state, packed by dtype, and a header."""

import json
import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxbnn.sampling.store import files
from jaxbnn.sampling.store.fingerprint import key_name, to_numpy

Packed = dict[str, np.ndarray]


def pack(leaves: dict[str, Any]) -> tuple[Packed, dict[str, list]]:
    """Return one array a dtype, and where in it each leaf lies: (dtype, shape, begin, key's name).

    Each variable of a file costs a millisecond, and a state may have a hundred leaves.
    """
    packed: dict[str, list[np.ndarray]] = {}
    about: dict[str, list] = {}
    for where, leaf in leaves.items():
        array = to_numpy(leaf)
        parts = packed.setdefault(array.dtype.name, [])
        begin = sum(part.size for part in parts)
        about[where] = [array.dtype.name, array.shape, begin, key_name(leaf)]
        parts.append(array.reshape(-1))
    filled = {name: parts for name, parts in packed.items() if any(p.size for p in parts)}
    return {name: np.concatenate(parts) for name, parts in filled.items()}, about


def write_state(folder: Path, header: dict, packed: Packed, name: str = "state.nc") -> None:
    """Write the state whole."""
    # The header is no attribute: HDF5 has room for 64 KiB in one.
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)
    content = files.encode(packed | {"header": text}, {}, {"format": files.FORMAT})
    files.write_whole(folder / name, content)


def read_state(folder: Path, name: str = "state.nc") -> tuple[dict, dict[str, Any]]:
    """Return what the file says of its run, and the arrays and keys of its state by name."""
    path = folder / name
    with files.opened(path) as file:
        files.check_format(path, file)
        packed = {name: files.read(file, name) for name in file.variables}
    header = json.loads(packed["header"].tobytes())
    found = {}
    for where, (dtype, shape, begin, impl) in header["leaves"].items():
        whole = packed.get(dtype, np.empty(0, jnp.dtype(dtype)))
        array = whole[begin : begin + math.prod(shape)].reshape(shape)
        found[where] = jax.random.wrap_key_data(jnp.asarray(array), impl=impl) if impl else array
    return header, found
