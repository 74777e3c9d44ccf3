"""What every evaluation can say, whatever its task: its metrics, its files in the run folder, its value by site."""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

Ints = NDArray[np.int64]
Arrays = Mapping[str, NDArray[np.generic]]


class Outcome(Protocol):
    """How good a model is on some rows of a corpus."""

    @property
    def threshold(self) -> float | None:
        """From which probability on a relation was found, where that was tuned on dev."""

    def metrics(self) -> dict[str, float]:
        """The numbers of the papers' tables, by the names that `result.json` uses."""

    def files(self) -> dict[str, Record]:
        """What the run folder keeps of it besides the metrics, by file name."""

    def units(self) -> Arrays:
        """The answers unit by unit, as `bootstrap.units_of` reads them."""

    def at_sites(self, shares: Mapping[str, Ints], metric: str) -> AtSites | None:
        """A metric at each site, on its share of the rows, by site; None if there is no such thing for the task."""


class Record(BaseModel):
    """A JSON object of a run folder. Written and read as the same class; unknown fields are of a later version."""

    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="constants")


class Curve(Record):
    """`pr_curve.json`: precision and recall on the test set, from the surest guess down."""

    precision: list[float]
    recall: list[float]


class ClassScores(Record):
    """How well one relation was told from the others; `support` test sentences have it."""

    relation: str
    f1: float
    precision: float
    recall: float
    support: int


class Confusion(Record):
    """`counts[i][j]` test sentences of relation i were given relation j."""

    relations: list[str]
    counts: list[list[int]]


class Classes(Record):
    """`classes.json`: the relations of a classification, one by one and against each other."""

    per_class: list[ClassScores]
    confusion: Confusion


class Fairness(Record):
    """A metric over the sites that it could be measured at; sites count alike, whatever they hold."""

    mean: float
    spread: float
    worst: float
    worst_site: str
    best: float
    best_site: str
    measured: int


class AtSites(Record):
    """A metric at each site, on its share of the test set; None where there was nothing to measure.

    `rows` is how many sentences or documents each share has. `natural` says that a site's share is its own text,
    and not one that only looks like it.
    """

    metric: str
    values: dict[str, float | None]
    fairness: Fairness | None = None
    rows: dict[str, int] = {}
    natural: bool = False

    @classmethod
    def of(cls, metric: str, values: Mapping[str, float | None]) -> AtSites:
        """These values and their fairness."""
        return cls(metric=metric, values=dict(values), fairness=fairness(values))


def fairness(values: Mapping[str, float | None]) -> Fairness | None:
    """Summarise a metric's value at each site, where higher is better; None if no site has one.

    A site where nothing can be measured has None or NaN. `measured` is how many others there are, `spread` their
    standard deviation; of equal sites, the first is named.

    >>> fairness({"a": 0.5, "b": None, "c": 0.9}).worst_site
    'a'
    """
    there = {site: float(value) for site, value in values.items() if value is not None and not isnan(value)}
    if not there:
        return None
    worst_site, best_site = min(there, key=there.__getitem__), max(there, key=there.__getitem__)
    measured = np.array(list(there.values()))
    return Fairness(
        mean=float(measured.mean()),
        spread=float(measured.std()),
        worst=there[worst_site],
        worst_site=worst_site,
        best=there[best_site],
        best_site=best_site,
        measured=len(there),
    )
