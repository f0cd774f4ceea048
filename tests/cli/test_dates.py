"""Dates against the calendar of the standard library, and the formats that are told apart."""

from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np
import pytest

from jaxbnn.cli.columns import learn_column
from jaxbnn.cli.dates import (
    as_days,
    find_order,
    look_like_dates,
    part_features,
    part_names,
    parts_known,
    written,
    written_in_two_ways,
)

EPOCH = datetime(1970, 1, 1)
MOMENTS = [datetime(1899, 12, 31), datetime(2000, 2, 29, 23, 59, 59), datetime(2024, 1, 13, 12)]


@pytest.mark.parametrize(
    ("form", "order"),
    [
        ("%Y-%m-%d %H:%M:%S", "year-month-day"),
        ("%Y/%m/%dT%H:%M:%SZ", "year-month-day"),
        ("%d.%m.%Y %H:%M:%S", "day-month-year"),
        ("%d/%m/%Y %H:%M:%S", "day-month-year"),
        ("%m/%d/%Y %I:%M:%S %p", "month-day-year"),
    ],
)
def test_days_are_those_of_the_calendar(form, order):
    values = [moment.strftime(form) for moment in MOMENTS]
    assert find_order(values) == order
    expected = [(moment - EPOCH) / timedelta(days=1) for moment in MOMENTS]
    np.testing.assert_allclose(as_days([*values, "NA"], order), [*expected, np.nan])
    assert [written(day) for day in expected] == [str(moment.date()) for moment in MOMENTS]


def test_zones_count():
    utc, east, west = as_days(
        ["2020-01-01T10:00Z", "2020-01-01T12:30+02:30", "2020-01-01T04:30-05:30"], "year-month-day"
    )
    assert utc == east == west


def test_afternoons_may_be_written_small():
    late, midnight, small = as_days(
        ["2020-01-01 3:00 PM", "2020-01-01 12:00 am", "2020-01-01 3:00 pm"], "year-month-day"
    )
    assert late == small == midnight + 15 / 24


def test_fractions_of_a_second_count():
    days = as_days(["2020-01-01 00:00:00.25", "2020-01-01 00:00:01,5"], "year-month-day")
    np.testing.assert_allclose((days - days[0]) * 86400, [0, 1.25], atol=1e-5)
    column, _ = learn_column("at", [f"2020-01-01 10:00:00.{i}" for i in range(10)], ["2020-01-01"])
    assert column.sd * 86400 == pytest.approx(np.arange(10).std() / 10, rel=1e-4)


ABROAD = [f"2020-01-{day:02d} {hour:02d}:00+10:00" for day in range(1, 29) for hour in (2, 14)]


def test_parts_are_of_the_clock_that_a_date_is_written_by():
    """Friday at two in the morning, though it is Thursday in UTC; days are those of UTC."""
    column, _ = learn_column("d", ABROAD, ABROAD)
    assert column.has_zone
    encoded = dict(
        zip(column.features, column.encode(["2020-01-03T02:00+10:00"], "new.csv"), strict=True)
    )
    assert [day for day in encoded if encoded[day][0] == 1 and day.endswith("day")] == ["d: Friday"]
    angle = 2 * np.pi * 2 / 24
    assert encoded["d: time of day (cos)"][0] == pytest.approx(np.cos(angle))
    assert encoded["d: time of day (sin)"][0] == pytest.approx(np.sin(angle))
    one_instant = column.encode(["2020-01-03T02:00+10:00", "2020-01-02T16:00Z"], "new.csv")
    assert one_instant[0][0] == one_instant[0][1]


def test_the_parts_that_are_known_are_those_of_the_clock():
    """Midnights of a country with summer time are at two hours of UTC."""
    days = [f"2020-03-{day}T00:00+01:00" for day in range(10, 29)]
    days += [f"2020-03-{day}T00:00+02:00" for day in (29, 30, 31)]
    column, _ = learn_column("d", days, days)
    assert column.date_parts == ["weekday"]


def test_dates_with_and_without_a_zone_are_not_mixed():
    bare = [value[:-6] for value in ABROAD]
    with pytest.raises(ValueError, match="with a time zone and '2020-01-01 14:00' without one"):
        learn_column("d", ABROAD, [ABROAD[0], *bare[1:]])
    column, _ = learn_column("d", bare, bare)
    with pytest.raises(ValueError, match="which has a time zone, but none had one in the fit"):
        column.encode(["2020-01-03 06:00", "2020-01-03 06:00+10:00"], "new.csv")
    column, _ = learn_column("d", ABROAD, ABROAD)
    with pytest.raises(ValueError, match="which has no time zone, but all had one in the fit"):
        column.encode(["2020-01-03"], "new.csv")
    of_before = replace(column, has_zone=None)  # whose parts are of UTC, whatever the zone
    *_, sine = of_before.encode(["2020-01-03", "2020-01-03 06:00+06:00"], "new.csv")
    np.testing.assert_allclose(sine, 0, atol=1e-9)


def test_what_is_no_date():
    assert find_order(["", "NA"]) is None
    assert find_order(["13/13/2020"]) is None
    assert find_order(["13/1/2020", "1/13/2020"]) is None
    assert find_order(["2020-1"]) is None
    assert find_order(["20200101"]) is None
    assert find_order(["3-4-2020"]) == "open"
    for value in ("2020-02-30", "2020-02-03 24:00", "2020-02-03 10:60", "2020-02-03 10:00:61"):
        assert as_days([value], "year-month-day") == value
    assert look_like_dates(["2020-01-01", "2020-01-02", "soon"]) == ["soon"]
    assert look_like_dates(["2020-01-01", "now", "soon"]) == []


def test_points_tell_of_an_order_where_all_dates_have_them():
    assert find_order(["3/4/2020", "4.5.2020"]) == "open"


def test_a_column_with_dates_of_two_kinds():
    for mixed in (
        ["2020-12-31", "31.12.2020"],
        ["1/2/2020", "13/1/2020", "1/13/2020"],
        ["1/2/2020", "2020-12-31"],
    ):
        assert written_in_two_ways([*mixed, ""]) == tuple(mixed[-2:])
        with pytest.raises(ValueError, match=r"dates in more than one way, such as '.*' and '.*'"):
            learn_column("day", mixed * 3, mixed * 3)
    for other in (["2020-12-31", "soon"], ["2020-12-31", ""], ["3/4/2020", "4.5.2020"], ["a"], []):
        assert written_in_two_ways(other) is None


def test_parts():
    assert parts_known(np.array([0.0, 7.0])) == []
    assert parts_known(np.array([0.0, 14.0])) == []  # always the same weekday
    assert parts_known(np.array([0.0, 15.0, np.nan])) == ["weekday"]
    assert parts_known(np.array([0.0, 0.5])) == ["time of day"]
    assert parts_known(np.array([0.25, 700.25])) == ["season"]
    assert parts_known(np.array([0.0, 365.0])) == ["weekday"]  # a year alone tells of no season
    assert parts_known(np.array([0.0, 548.0])) == ["season", "weekday"]
    days = np.array([0.0, 4.0, 4.0 + 0.25, np.nan])
    weekday = np.stack(part_features(days, "weekday"))
    assert [part_names("weekday")[i] for i in weekday[:, :3].argmax(axis=0)] == [
        "Thursday",
        "Monday",
        "Monday",
    ]
    cosine, sine = part_features(days, "time of day")
    np.testing.assert_allclose(cosine, [1, 1, 0, 0], atol=1e-12)
    np.testing.assert_allclose(sine, [0, 0, 1, 0], atol=1e-12)
    season = np.stack(part_features(np.array([0.0, 365.2425, 365.2425 / 2]), "season"))
    np.testing.assert_allclose(season[0], [1, 1, -1], atol=1e-9)


def test_new_rows_are_read_in_the_order_of_the_fit():
    """A few rows, or one slip among them, would tell of another order; a year in front is sure."""
    months_first = ["12.31.2019", "01.02.2020", "02.03.2020", "06.30.2020"] * 3
    column, _ = learn_column("day", months_first, months_first)
    new = ["03.04.2020", "05.06.2020"]
    np.testing.assert_array_equal(column._days(new), as_days(new, "month-day-year"))
    days_first = ["13/01/2020", "02/01/2020", "28/02/2020"] * 4
    column, _ = learn_column("day", days_first, days_first)
    assert column._days(["03/04/2020", "05/06/2020", "03/25/2020"]) == "03/25/2020"
    first = ["2020-03-04", "2020-06-05"]
    np.testing.assert_array_equal(column._days(first), as_days(first, "year-month-day"))


def test_a_date_that_is_there_or_missing_tells_which():
    column, note = learn_column("left", ["2020-01-01", "", "2020-01-01", ""], ["2020-01-01", ""])
    assert note == "left: always 2020-01-01 where it is given; taken as given or missing."
    given, missing = column.encode(["", "2020-01-01", "2021-01-01"], "new.csv")
    assert np.isfinite(given).all()
    assert missing.tolist() == [True, False, False]
    assert column.is_outside(["2021-01-01", "2020-01-01", ""]).tolist() == [True, False, False]
    assert learn_column("left", ["2020-01-01"] * 2, ["2020-01-01"])[0] is None


def test_a_number_that_is_there_or_missing_tells_which():
    column, note = learn_column("promo", ["1", "", "1", ""], ["1", ""])
    assert note == "promo: always 1 where it is given; taken as given or missing."
    assert column.features == ["promo", "promo is missing"]
    given, missing = column.encode(["1", "", "3"], "new.csv")
    assert given.tolist() == [0.0, 0.0, 0.0]
    assert missing.tolist() == [False, True, False]
    assert column.is_outside(["1", "", "3"]).tolist() == [False, False, True]
    assert learn_column("promo", ["1", "1"], ["1", "1"])[0] is None


@pytest.mark.parametrize("value", ["0.1", "0.3", "1e-3", "123.4"])
@pytest.mark.parametrize("count", [3, 10, 1000])
def test_the_one_value_of_a_column_is_not_outside_it(value, count):
    """The mean of equal numbers is none of them, as it is rounded."""
    values = [value] * count + [""]
    column, _ = learn_column("rate", values, values)
    assert not column.is_outside(values).any()
    assert column.encode(values, "new.csv")[0].tolist() == [0.0] * len(values)
    assert column.is_outside([f"{1.001 * float(value)}"]).tolist() == [True]


OFFICE = [
    f"{day:%Y-%m-%d} {hour:02d}:30"
    for day in (datetime(2021, 3, 1) + timedelta(days=number) for number in range(40))
    if day.weekday() < 5
    for hour in range(9, 18)
]


def test_weekdays_and_times_of_day_that_the_fit_lacked_are_told():
    """Inside the range of dates, but of features whose weights nothing was learnt of."""
    column, _ = learn_column("when", OFFICE, OFFICE)
    assert column.date_parts == ["weekday", "time of day"]
    new = ["2021-03-14 03:15", "2021-03-13 12:00", "2021-03-12 12:00", "2021-03-12 23:59", ""]
    new += ["2021-03-12 07:45", "2021-03-12 19:45"]  # less than a tenth of a day away
    assert column.is_outside(new).tolist() == [True, True, False, True, False, False, False]
    (told,) = column.dates_outside(new)
    assert told == (
        "when: 3 of 7 dates are of a weekday or time that the fit lacked, such as Sunday, "
        "2021-03-14 03:15."
    )
    assert not column.is_outside(OFFICE).any()
    assert column.dates_outside(OFFICE) == []
    before = replace(column, parts_seen={})  # of a fit that did not write them
    assert not before.is_outside(new).any()


def test_the_ends_of_times_are_written_with_their_hours():
    column, _ = learn_column("when", OFFICE[:9], OFFICE[:9])
    told = column.dates_outside(["2021-03-01 03:20", "2021-03-01 04:00", OFFICE[0]])
    assert (
        "2021-03-01 03:20 to 2021-03-01 04:00, lie outside the fit's, 2021-03-01 09:30" in told[0]
    )


@pytest.mark.parametrize(
    "way", ["{:02d} Feb 2022", "Feb {}, 2022", "1/{}/18", "00:{:02d}", "{}:30 pm", "Feb. 20{:02d}"]
)
def test_dates_that_are_not_read_are_named_as_such(way):
    values = [way.format(number % 28 + 1) for number in range(60)]
    with pytest.raises(ValueError, match="write dates as 2020-12-31 and times as hours"):
        learn_column("when", values, values)


@pytest.mark.parametrize(
    ("fitted", "new", "marks"),
    [
        (["3/4/2021", "12/24/2021", "5/6/2021"], "3.10.2021", "strokes, month-day-year"),
        (["3.4.2021", "24.12.2021", "5.6.2021"], "3/10/2021", "points, day-month-year"),
    ],
)
def test_another_mark_is_refused_for_it_has_another_order(fitted, new, marks):
    """3.10.2021 is a day of October, but 3/10/2021 of a month-first file one of March."""
    column, _ = learn_column("when", fitted, fitted)
    with pytest.raises(ValueError, match=f"holds '{new}', but the fit's dates had {marks}; write"):
        column.encode([fitted[0], new], "new.csv")
    column.encode([*fitted, ""], "new.csv")
    replace(column, has_points=None).encode([new], "new.csv")  # of a fit that did not write it
    with pytest.raises(ValueError, match="writes its dates in more than one way, such as"):
        learn_column("when", [*fitted, new], [*fitted, new])


def test_the_last_day_of_a_fit_without_times_lasts_to_its_end():
    dates = [f"2020-01-{day:02d}" for day in range(1, 31)]
    column, _ = learn_column("when", dates, dates)
    new = ["2020-01-30 18:00", "2020-01-31 00:00", "2019-12-31 23:59"]
    assert column.is_outside(new).tolist() == [False, True, True]
    (remark,) = column.dates_outside(["2020-01-02", "2020-02-05"])
    assert "1 of 2 dates, 2020-02-05, lies outside the fit's, 2020-01-01 to 2020-01-30" in remark
