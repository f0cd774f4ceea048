"""Every public name says what it takes, raises, rests on and looks like: the reference's text."""

import ast
import importlib
import inspect
import textwrap

from tests.conftest import LONG_EXAMPLES
from tests.kit.docstrings import examples_of, public_entries

ENTRIES = public_entries()
FUNCTIONS = [entry for entry in ENTRIES if inspect.isfunction(inspect.unwrap(entry.value))]
CLASSES = [entry for entry in ENTRIES if inspect.isclass(entry.value)]
# Packages that hold what papers say; the functions in them that do not rest on one.
PAPERS = ("diagnostics", "dvi", "gibbs", "kernels", "thermalization", "wide")
NO_PAPER = {
    *(
        "cycle",
        "mix",
        "on_block",
        "in_turn",
        "on_vector",
        "redraw_units",
        "refresh",
        "repeat",
        "summary",
    ),
    *(f"diagnostics.{name}" for name in ("autocorrelation", "by_replica", "evaluate")),
    "diagnostics.swap_acceptance",
    *(f"dvi.{name}" for name in ("as_distributions", "fit", "fitted_prior", "initial_position")),
    *(f"dvi.{name}" for name in ("expected_terms", "predictive_of")),
    *(f"dvi.{name}" for name in ("per_fan_in", "standardisation", "weight_draws")),
    "kernels.covariance_operator",
    *(f"kernels.{name}" for name in ("dense_covariance", "metropolis")),
    *(f"wide.{name}" for name in ("carry_complement", "count_accepted", "fill_in_langevin")),
    *(f"wide.{name}" for name in ("reduce_inputs", "reduced_langevin")),
    *(f"wide.{name}" for name in ("weight_projections", "with_read_out")),
}


def short(entry):
    return entry.name.removeprefix("jaxbnn.")


def arguments(entry):
    return [
        parameter
        for parameter in inspect.signature(entry.value).parameters.values()
        if parameter.name != "self"
    ]


def test_every_argument_has_a_type_or_shape_and_is_described():
    bare = [
        f"{short(entry)}({parameter.name})"
        for entry in FUNCTIONS
        for parameter in arguments(entry)
        if parameter.annotation is parameter.empty
    ]
    assert not bare
    assert not [short(e) for e in FUNCTIONS if arguments(e) and "Parameters" not in e.sections]


def test_every_class_says_what_it_holds():
    silent = [
        short(entry)
        for entry in CLASSES
        if not entry.signature.endswith("()")
        and not {"Attributes", "Parameters"} & set(entry.sections)
    ]
    assert not silent


def raises(function, depth=2, seen=()):
    """Whether a function or a helper that it calls by name raises ValueError or TypeError."""
    function = inspect.unwrap(function)
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    calls = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            kind = ast.unparse(node.exc.func)
            if kind in ("ValueError", "TypeError"):
                return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            calls.append(function.__globals__.get(node.func.id))
    helpers = [
        called
        for called in calls
        if inspect.isfunction(called) and called.__module__.startswith("jaxbnn")
    ]
    return depth > 0 and any(
        raises(called, depth - 1, (*seen, called)) for called in helpers if called not in seen
    )


def test_every_function_that_refuses_input_says_so():
    silent = [short(e) for e in FUNCTIONS if "Raises" not in e.sections and raises(e.value)]
    assert not silent


def test_functions_that_rest_on_a_paper_cite_it():
    silent = {
        short(entry)
        for entry in FUNCTIONS
        if not entry.source and entry.value.__module__.split(".")[1] in PAPERS
    }
    assert silent == NO_PAPER


def test_every_name_is_shown_by_an_example():
    shown = examples_of(ENTRIES)
    assert not [short(entry) for entry in ENTRIES if entry.name not in shown]
    own = {entry.name for entry in ENTRIES if "Examples" in entry.sections}
    assert not [short(entry) for entry in FUNCTIONS if entry.name not in own]


def test_examples_that_are_long_are_there():
    """A name that nothing has would leave its example among the quick tests."""
    for name in LONG_EXAMPLES:
        module, _, function = name.rpartition(".")
        assert ">>> " in getattr(importlib.import_module(module), function).__doc__, name
