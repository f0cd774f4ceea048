"""Tables 1 to 4 as configuration: which sampler runs where, with what step sizes, how long."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field, model_validator

from experiments.study import Settings


class Point(Settings):
    """One row of a table: step sizes and lengths at one noise variance."""

    delta: float = Field(gt=0)
    num_steps: int = Field(gt=0)
    learning_rate: float | None = Field(default=None, gt=0)
    leapfrog_steps: int | None = Field(default=None, gt=0)


class Run(Settings):
    """One sampler on one posterior; `informed_table`, if used, is for the informed start."""

    sampler: Literal["Gibbs", "HMC", "MALA", "NUTS"]
    posterior: Literal["intermediate", "classical"]
    table: tuple[Point, ...] = Field(min_length=1)
    informed_table: tuple[Point, ...] = ()
    uses_informed_table: bool = True

    @property
    def label(self) -> str:
        """What it is called in figures."""
        return f"{self.sampler}, {self.posterior}"

    @property
    def paper_name(self) -> str:
        """What it is called in the paper's values."""
        noise = " noise" if self.posterior == "intermediate" else ""
        return f"{self.sampler}, {self.posterior}{noise} posterior"


class Budget(Settings):
    """What a scale keeps of a run's tables: some values of Delta, and fewer steps (for each)."""

    deltas: tuple[float, ...] | None = None
    num_steps: int | tuple[int, ...] | None = None

    @model_validator(mode="after")
    def _has_steps_for_each_delta(self):
        if isinstance(self.num_steps, tuple) and len(self.num_steps) != len(self.deltas or ()):
            raise ValueError("num_steps must be one number, or one for each of deltas")
        given = self.num_steps if isinstance(self.num_steps, tuple) else (self.num_steps,)
        if any(number is not None and number < 40 for number in given):
            raise ValueError("num_steps must be at least 40, of which 20 are judged")
        return self

    def most_steps(self, delta: float) -> int | None:
        """Return the most steps at this Delta, None for what the table says."""
        if isinstance(self.num_steps, tuple):
            assert self.deltas is not None  # checked above
            return self.num_steps[self.deltas.index(delta)]
        return self.num_steps


class SamplersSettings(Settings):
    """Settings; `budgets` by run ("HMC, classical"), runs without one are left out if any is given.

    `uninformed_scale` is the standard deviation of HMC's and MALA's uninformed start, in units
    of the prior's for weights; Gibbs starts at zero.
    """

    widths: tuple[int, ...] = (50, 10, 1)
    activation: str = "relu"
    num_train: int = Field(gt=0)
    num_test: int = Field(gt=0)
    num_datasets: int = Field(gt=0)
    num_records: int = Field(gt=0)
    uninformed_scale: float = Field(default=1e-4, gt=0)
    false_alarm_rate: float = Field(default=0.01, gt=0, lt=1)
    figure: Literal["left", "right"]
    runs: tuple[Run, ...] = Field(min_length=1)
    budgets: dict[str, Budget] = Field(default_factory=dict)


def kept_points(run: Run, table: tuple[Point, ...], settings: SamplersSettings) -> Iterator[Point]:
    """Yield the rows of a table that the scale keeps, with the steps it allows."""
    budget = settings.budgets.get(run.label, Budget())
    for point in table:
        if budget.deltas is None or point.delta in budget.deltas:
            num_steps = min(point.num_steps, budget.most_steps(point.delta) or point.num_steps)
            yield point.model_copy(update={"num_steps": num_steps})
