"""A number's spread over runs is found beside it, by its quantity and setting."""

from experiments.spreads import spread_name, spreads_of


def row(quantity, value, setting="MALA"):
    return {"quantity": quantity, "setting": setting, "value": value}


def test_spreads_are_found_by_what_they_are_of():
    rows = [
        row("ess_min", 9.0),
        row(spread_name("ess_min"), 2.0),
        row(spread_name("ess_min"), 3.0, "SMMALA"),
        row(spread_name("ess_max"), None),  # not a finite number
    ]
    assert spreads_of(rows) == {("ess_min", "MALA"): 2.0, ("ess_min", "SMMALA"): 3.0}
