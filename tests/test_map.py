"""Every module is covered by exactly one test file, which its name or its first line says."""

from pathlib import Path

from tests import map as test_map


def test_every_module_is_named_by_one_test_file():
    covered = test_map.covered()
    nowhere = [test_map.what_to_write(name) for name, paths in covered.items() if not paths]
    twice = [
        f"{name} is named by {' and '.join(str(p.relative_to(test_map.ROOT)) for p in paths)}: "
        "leave it out of the first line of all but one."
        for name, paths in covered.items()
        if len(paths) > 1
    ]
    assert not nowhere + twice, "\n".join(["", *nowhere, *twice])


def test_first_lines_name_modules_that_are_there():
    wrong = {
        str(path.relative_to(test_map.ROOT)): sorted(unknown)
        for path in test_map.test_files()
        if (unknown := test_map.unknown_names(path))
    }
    assert not wrong, f"rename in these first lines what is no module any more: {wrong}"


def test_names_are_read_as_the_convention_says(tmp_path):
    path = Path(tmp_path) / "test_x.py"
    path.write_text(
        '"""Tests of kernels.swaps, kernels.nothing\nand experiments.record: a.b.\n\nwide.new"""\n'
    )
    assert test_map.names(path) == {"jaxbnn.kernels.swaps", "experiments.record"}
    assert test_map.unknown_names(path) == {"kernels.nothing"}
