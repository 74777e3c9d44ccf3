"""The part of a run's page about class vectors: d(k,c) beside n(k,c) (FedCMC, Fig. 1), and its observations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedrel.evaluation.heterogeneity import Observations, observe
from fedrel.runs.folder import Run
from fedrel.runs.records import LabelCounts, Round
from fedrel.studio import figures, heatmaps, notes
from fedrel.studio import formatting as fmt
from fedrel.studio.figures import Plot, Series
from fedrel.studio.heatmaps import Layer

Floats = NDArray[np.float64]

_FEW = 3  # rounds that count as the first ones, and as the last ones
_WEAK = -0.1  # a correlation nearer to nothing than this is not much of one


@dataclass(frozen=True, slots=True)
class Check:
    """One of the paper's observations: what it says, and the rank correlation that it says is below zero."""

    number: str
    claim: str
    when: str
    value: float

    @property
    def verdict(self) -> str:
        """Whether it holds here."""
        if math.isnan(self.value):
            return "cannot be told"
        if self.value >= 0:
            return "does not hold"
        return "holds weakly" if self.value > _WEAK else "holds"


@dataclass(frozen=True, slots=True)
class VectorView:
    """How many examples each site has, how far its class vectors stand apart, and whether the two agree."""

    plots: list[Plot]
    checks: list[Check]
    wide: bool


def vector_view(run: Run) -> VectorView | None:
    """The view of one run; None where its class vectors were not measured."""
    rounds = [one for one in run.rounds if one.class_distances]
    if not rounds or run.label_counts is None:
        return None
    counts = np.array(run.label_counts.counts, np.int64)
    distances = _by_round(rounds, counts.shape)
    classes = np.argsort(-counts.sum(axis=0), kind="stable")[: heatmaps.MOST]
    sites = np.sort(np.argsort(-counts.sum(axis=1), kind="stable")[: heatmaps.MOST])
    shown = np.ix_(sites, classes)
    names = [run.label_counts.sites[site] for site in sites]
    relations = [run.label_counts.relations[label] for label in classes]
    seen = observe(distances, counts)
    plots = [
        _labels(counts[shown], names, relations, _left_out(run.label_counts, names, relations)),
        _similarities("first", _latest(distances[::-1])[shown], names, relations),
    ]
    if len(rounds) > 1:
        plots.append(_similarities("last", _latest(distances)[shown], names, relations))
        plots.append(_correlations(seen, [one.round for one in rounds]))
    return VectorView([plot for plot in plots if plot], _checks(seen), wide=len(relations) > heatmaps.FEW)


def _by_round(rounds: Sequence[Round], shape: tuple[int, ...]) -> Floats:
    """d(k,c), [rounds, sites, relations]; NaN where a site was not active."""
    distances = np.full((len(rounds), *shape), np.nan)
    for number, one in enumerate(rounds):
        for site, values in (one.class_distances or {}).items():
            distances[number, site] = values
    return distances


def _latest(distances: Floats) -> Floats:
    """Each site's distances when it was last active, [sites, relations]; NaN if it never was."""
    latest = np.full(distances.shape[1:], np.nan)
    for one in distances:
        active = ~np.isnan(one).any(axis=1)
        latest[active] = one[active]
    return latest


def _labels(counts: NDArray[np.int64], sites: list[str], relations: list[str], left_out: str) -> Plot:
    logs = np.log10(np.maximum(counts, 1))
    shade = np.where(counts > 0, 0.1 + 0.9 * logs / max(float(logs.max()), 1e-9), np.nan)
    text = [[f"{count:,}" for count in row] for row in counts]
    return _map(
        "What each site has: n(k,c)",
        shade,
        text,
        sites,
        relations,
        notes.LABELS + left_out,
    )


def _similarities(time: str, distances: Floats, sites: list[str], relations: list[str]) -> Plot | None:
    known = distances[~np.isnan(distances)]
    if not known.size:
        return None
    low, high = float(known.min()), float(known.max())
    shade = (high - distances) / max(high - low, 1e-9)
    text = [["" if np.isnan(cell) else _two_digits(cell) for cell in row] for row in distances]
    return _map(
        f"Class vectors when {time} active: d(k,c)",
        shade,
        text,
        sites,
        relations,
        f"{notes.SIMILARITIES[time]} Values go from {_two_digits(low)} to {_two_digits(high)}.",
    )


def _map(
    title: str, shade: Floats, text: list[list[str]], sites: list[str], relations: list[str], note: str
) -> Plot:
    hover = [
        [f"{site}, {relation}: {cell}" for relation, cell in zip(relations, row, strict=True)]
        for site, row in zip(sites, text, strict=True)
    ]
    height, width = heatmaps.size(sites, relations)
    written = text if len(relations) <= heatmaps.FEW else [[""] * len(relations)] * len(sites)
    figure = heatmaps.heat_map([Layer(shade, written, hover)], sites, relations, "", "")
    return Plot(title, figure, f"{title}, as a map of sites by relations.", note, height=height, width=width)


def _left_out(counts: LabelCounts, sites: list[str], relations: list[str]) -> str:
    """What the maps do not show."""
    parts = []
    if len(sites) < len(counts.sites):
        parts.append(f"the {len(sites)} largest of {len(counts.sites):,} sites")
    if len(relations) < len(counts.relations):
        parts.append(f"the {len(relations)} most frequent of {len(counts.relations):,} relations")
    return f" Shown are {fmt.several(parts)}." if parts else ""


def _checks(seen: Observations) -> list[Check]:
    """Each observation at the time that the paper makes it for."""
    return [
        Check(
            "1",
            "A site's class vectors stand further apart, the more of the class the site has.",
            "in the first rounds",
            _mean(seen.own[:_FEW]),
        ),
        Check("2", "The sites' d(k,c) draw closer to d(c), their mean.", "over the rounds", seen.closing),
        Check(
            "2",
            "The mean's class vectors stand further apart, the more of the class all sites have.",
            "in the last rounds",
            _mean(seen.whole[-_FEW:]),
        ),
        Check(
            "3",
            "A class's vector stands further apart at the sites that have more of the class.",
            "in all rounds",
            _mean(seen.across),
        ),
    ]


def _correlations(seen: Observations, rounds: list[int]) -> Plot:
    names = ("1: classes of a site", "2: classes of all sites", "3: sites, class by class")
    values = (seen.own.tolist(), seen.whole.tolist(), seen.across.tolist())
    series = [
        Series(name, place, rounds, value)
        for place, (name, value) in enumerate(zip(names, values, strict=True))
    ]
    figure = figures.by_round(figures.lines(series, "Round", "Rank correlation"), max(rounds))
    figure["layout"]["yaxis"].update(range=[-1.05, 1.05], zeroline=True, zerolinecolor="var(--muted)")
    ends = fmt.several([f"{name} {fmt.share(value[-1])}" for name, value in zip(names, values, strict=True)])
    return Plot(
        "The observations, round by round",
        figure,
        f"Rank correlations by round; at the end {ends}.",
        notes.OBSERVATIONS,
    )


def _two_digits(value: float) -> str:
    """Two digits, and 0.00 instead of -0.00."""
    return f"{round(value, 2) + 0.0:.2f}"


def _mean(values: Floats) -> float:
    """The mean of the values there are."""
    there = values[~np.isnan(values)]
    return float(there.mean()) if there.size else math.nan
