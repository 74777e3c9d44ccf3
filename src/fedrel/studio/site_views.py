"""The parts of a run's page about its sites: what each did in every round, and how its class vectors differ.

Over rounds: who took part, with which loss, what it sent, and whose answers were refused. Class vectors: d(k,c)
beside n(k,c) (FedCMC, Fig. 1), and the paper's observations.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedrel.evaluation.heterogeneity import Observations, observe
from fedrel.runs.folder import Run
from fedrel.runs.records import LabelCounts, Round
from fedrel.studio import figures, notes
from fedrel.studio import formatting as fmt
from fedrel.studio.figures import Layer, Plot, Series

Floats = NDArray[np.float64]
_LEAST, _REFUSED = 0.12, 0.75  # shades: of the lowest loss, and of a refusal

_FEW = 3  # rounds that count as the first ones, and as the last ones
_WEAK = -0.1  # a correlation nearer to nothing than this is not much of one


@dataclass(frozen=True, slots=True)
class SiteLine:
    """A site over the whole run; what is not known is None."""

    name: str
    rounds: int
    loss: float | None  # the last that it reported
    up: int | None
    refused: int
    value: float | None  # the metric on its test part


@dataclass(frozen=True, slots=True)
class SitesView:
    """The map, a line for each site, and the metric that the lines have."""

    plot: Plot
    lines: list[SiteLine]
    metric: str


def site_rounds(run: Run) -> SitesView | None:
    """The sites of a run; None before the first round, and where all data are in one place."""
    known = sorted({site for one in run.rounds for site in one.active})
    if len(known) < 2:
        return None
    names = _names(run, known[-1] + 1)
    lines = [_line(run, site, names[site]) for site in known]
    order = sorted(range(len(known)), key=lambda place: (-lines[place].refused, -lines[place].rounds, place))
    shown = sorted(order[: figures.MOST])
    return SitesView(
        plot=_rounds_map(run.rounds, [known[place] for place in shown], names, len(known)),
        lines=[lines[place] for place in shown],
        metric=run.result.sites.metric if run.result.sites else "",
    )


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
    classes = np.argsort(-counts.sum(axis=0), kind="stable")[: figures.MOST]
    sites = np.sort(np.argsort(-counts.sum(axis=1), kind="stable")[: figures.MOST])
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
    return VectorView([plot for plot in plots if plot], _checks(seen), wide=len(relations) > figures.FEW)


def _names(run: Run, sites: int) -> list[str]:
    """The sites' names by number, where the folder has them."""
    file = run.folder / "federation.json"
    named: Sequence[str] = ()
    if run.label_counts is not None:
        named = run.label_counts.sites
    elif run.result.sites is not None:
        named = list(run.result.sites.values)
    elif file.exists():
        named = [str(one["name"]) for one in json.loads(file.read_text(encoding="utf-8"))["sites"]]
    return list(named) if len(named) >= sites else [f"site {number}" for number in range(sites)]


def _line(run: Run, site: int, name: str) -> SiteLine:
    own = [one.at_sites[site] for one in run.rounds if site in one.at_sites]
    values = run.result.sites.values if run.result.sites else {}
    return SiteLine(
        name=name,
        rounds=sum(site in one.active for one in run.rounds),
        loss=next((one.loss for one in reversed(own) if one.loss is not None), None),
        up=sum(one.up for one in own) if own else None,
        refused=sum(refusal.site == site for one in run.rounds for refusal in one.refused),
        value=values.get(name),
    )


def _rounds_map(rounds: Sequence[Round], sites: Sequence[int], names: Sequence[str], all_sites: int) -> Plot:
    groups = [list(part) for part in np.array_split(np.arange(len(rounds)), min(len(rounds), figures.MOST))]
    columns = [_column([rounds[at].round for at in group]) for group in groups]
    loss = np.full((len(sites), len(groups)), np.nan)
    took_part = np.zeros_like(loss, dtype=bool)
    refused = np.full_like(loss, np.nan)
    hover = [["" for _ in groups] for _ in sites]
    for column, group in enumerate(groups):
        within = [rounds[at] for at in group]
        for row, site in enumerate(sites):
            own = [one.at_sites[site] for one in within if site in one.at_sites]
            losses = [one.loss for one in own if one.loss is not None]
            times = sum(site in one.active for one in within)
            reasons = Counter(
                refusal.reason for one in within for refusal in one.refused if refusal.site == site
            )
            took_part[row, column] = bool(times)
            loss[row, column] = np.mean(losses) if losses else np.nan
            refused[row, column] = _REFUSED if reasons else np.nan
            hover[row][column] = _said(
                names[site], columns[column], times, len(group), losses, sum(one.up for one in own), reasons
            )
    names_shown = [names[site] for site in sites]
    shade = np.where(took_part & np.isnan(refused), _shade(loss), np.nan)
    empty = [["" for _ in groups] for _ in sites]
    marks = [["" if np.isnan(cell) else "✕" for cell in row] for row in refused]
    figure = figures.heat_map(
        [Layer(shade, empty, hover), Layer(refused, marks, hover, "warm")], names_shown, columns, "", "Round"
    )
    height, width = figures.size(names_shown, columns)
    some = f" Shown are {len(sites)} of {all_sites:,} sites." if len(sites) < all_sites else ""
    total = int(np.sum(~np.isnan(refused)))
    return Plot(
        "Sites, round by round",
        figure,
        f"A map of {len(sites)} sites by {len(rounds)} rounds; refused answers in {total} of its cells.",
        notes.SITE_ROUNDS + some,
        height=height,
        width=width,
    )


def _shade(
    loss: np.ndarray[tuple[int, int], np.dtype[np.float64]],
) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Stronger for a higher loss; in the middle where none was reported."""
    known = loss[np.isfinite(loss)]
    if not known.size:
        return np.full_like(loss, 0.5)
    low, high = float(known.min()), float(known.max())
    scaled = _LEAST + (1 - _LEAST) * (loss - low) / max(high - low, 1e-9)
    return np.where(np.isfinite(loss), scaled, 0.5)


def _column(numbers: Sequence[int]) -> str:
    return f"{numbers[0]}" if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"


def _said(
    name: str,
    column: str,
    times: int,
    rounds: int,
    losses: Sequence[float],
    sent: int,
    reasons: Counter[str],
) -> str:
    if not times and not reasons:
        return f"{name}, round {column}: not drawn"
    parts = ["took part" if rounds == 1 else f"took part in {times} of {rounds}"]
    if losses:
        parts.append(f"loss {fmt.share(float(np.mean(losses)))}")
    if sent:
        parts.append(f"sent {fmt.size(sent)}")
    parts += [f"refused: {reason}" for reason in reasons]
    return f"{name}, round {column}: {', '.join(parts)}"


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
    return _classes_map(
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
    return _classes_map(
        f"Class vectors when {time} active: d(k,c)",
        shade,
        text,
        sites,
        relations,
        f"{notes.SIMILARITIES[time]} Values go from {_two_digits(low)} to {_two_digits(high)}.",
    )


def _classes_map(
    title: str, shade: Floats, text: list[list[str]], sites: list[str], relations: list[str], note: str
) -> Plot:
    hover = [
        [f"{site}, {relation}: {cell}" for relation, cell in zip(relations, row, strict=True)]
        for site, row in zip(sites, text, strict=True)
    ]
    height, width = figures.size(sites, relations)
    written = text if len(relations) <= figures.FEW else [[""] * len(relations)] * len(sites)
    figure = figures.heat_map([Layer(shade, written, hover)], sites, relations, "", "")
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
            _known_mean(seen.own[:_FEW]),
        ),
        Check("2", "The sites' d(k,c) draw closer to d(c), their mean.", "over the rounds", seen.closing),
        Check(
            "2",
            "The mean's class vectors stand further apart, the more of the class all sites have.",
            "in the last rounds",
            _known_mean(seen.whole[-_FEW:]),
        ),
        Check(
            "3",
            "A class's vector stands further apart at the sites that have more of the class.",
            "in all rounds",
            _known_mean(seen.across),
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


def _known_mean(values: Floats) -> float:
    """The mean of the values there are."""
    there = values[~np.isnan(values)]
    return float(there.mean()) if there.size else math.nan
