"""The settings of the study of faster thermalization: arms, cases, and how long chains run."""

import itertools
import math
from typing import Literal

from pydantic import Field, model_validator

from experiments.study import Settings

Move = Literal["interweave", "scales", "noncentred scales", "redraws"]


class Arm(Settings):
    """A kernel, and whether its warm-up is annealed from `FasterSettings.anneal_from`.

    `turns_every` is the number of iterations from one step of `turn_units` to the next, 0 for none;
    its steps are part of the seconds and no iterations.
    """

    name: str
    moves: tuple[Move, ...] = ()
    is_annealed: bool = False
    turns_every: int = Field(default=0, ge=0)

    @property
    def kernel_name(self) -> str:
        """What the kernel is called: arms that differ in their warm-up alone share it."""
        turns = [f"turns every {self.turns_every}"] if self.turns_every else []
        return " and ".join([*self.moves, *turns]) or "plain"


class Case(Settings):
    """Data sets at one Delta; `num_copies` chains run from each start on each of them."""

    delta: float = Field(gt=0)
    is_noiseless: bool = False
    num_datasets: int = Field(gt=0)
    arms: tuple[str, ...] = Field(min_length=1)
    starts: tuple[Literal["zero", "prior", "optimised"], ...] = ("zero", "prior")
    num_copies: int = Field(default=1, gt=0)
    num_steps: int | None = Field(default=None, gt=0)
    num_warmup: int | None = Field(default=None, gt=0)


class FasterSettings(Settings):
    """Settings; steps count warm-up ones.

    Slices: `only_arms`, `only_deltas` and `only_starts` (beside the informed one) leave the others
    out, and what a slice has computed serves all later runs in the same folder. `num_warmup` is of
    annealed chains, `num_tuning` of others whose moves have a step size. Chains of other arms are
    judged against the informed ones of the arm `reference`, too. `every` iterations are one step of
    the kernel, after which a state may be recorded.
    """

    widths: tuple[int, ...] = (50, 10, 1)
    activation: str = "relu"
    num_train: int = Field(gt=0)
    num_test: int = Field(gt=0)
    num_steps: int = Field(gt=0)
    num_warmup: int = Field(gt=0)
    num_tuning: int = Field(default=1000, gt=0)
    every: int = Field(default=10, gt=0)
    reference: str = "all"
    num_records: int = Field(gt=0)
    record_every: int = Field(gt=0)
    anneal_from: float = Field(default=0.1, gt=0)
    hold: float = Field(default=0.3, gt=0, lt=1)
    num_integration_steps: int = Field(default=5, gt=0)
    num_candidates: int = Field(default=8, gt=0)
    false_alarm_rate: float = Field(default=0.01, gt=0, lt=1)
    arms: tuple[Arm, ...] = Field(min_length=1)
    cases: tuple[Case, ...] = Field(min_length=1)
    only_arms: tuple[str, ...] = ()
    only_deltas: tuple[float, ...] = ()
    only_starts: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _fits(self):
        names = [arm.name for arm in self.arms]
        if len(set(names)) != len(names):
            raise ValueError("each of 'arms' needs a name of its own")
        for name in [*itertools.chain(*(case.arms for case in self.cases)), *self.only_arms]:
            if name not in names:
                raise ValueError(f"there is no arm {name!r}, only {', '.join(names)}")
        for case in self.cases:
            num_steps, num_warmup = lengths(case, self)
            if num_warmup > num_steps // 2:
                raise ValueError("num_warmup must be at most half of num_steps, which is judged")
            if any(
                n % (arm.turns_every or self.every)
                for n in (num_steps, num_warmup, self.num_tuning)
                for arm in self.arms
            ):
                raise ValueError(
                    "num_steps, num_warmup and num_tuning must be multiples of every and of each "
                    "turns_every"
                )
        return self


def lengths(case: Case, settings: FasterSettings) -> tuple[int, int]:
    """Return the steps of a case, and how many of them are warm-up."""
    return case.num_steps or settings.num_steps, case.num_warmup or settings.num_warmup


def warmup_of(settings: FasterSettings, case: Case, arm: Arm, start: str) -> tuple[int, float]:
    """Return the warm-up steps of an arm from a start, and the Delta it begins at; 0: its own."""
    first = {"zero": settings.anneal_from, "prior": settings.anneal_from}
    # At the largest Delta the optimised network would be forgotten: half of the way, in log Delta.
    first["optimised"] = math.sqrt(settings.anneal_from * case.delta)
    if arm.is_annealed and start in first:
        return lengths(case, settings)[1], first[start]
    return (settings.num_tuning if "interweave" in arm.moves else 0), 0.0
