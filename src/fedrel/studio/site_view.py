"""The part of the pages about single sites: the metric at each, so that one sees who gains little."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

from fedrel.evaluation.outcome import AtSites
from fedrel.runs.folder import Run
from fedrel.studio import formatting as fmt
from fedrel.studio import notes
from fedrel.studio.figures import Figure, Plot, colour, framed, rule

_NAMED = 24  # bars with their names below and their values above; more are too narrow for that
_LONGEST_NAME = 18


def site_plot(sites: AtSites | None) -> Plot | None:
    """A bar for each site of a run, from the worst to the best; None where nothing was measured at sites."""
    if sites is None or sites.fairness is None:
        return None
    fair, label = sites.fairness, fmt.label(sites.metric)
    known = sorted((value, name) for name, value in sites.values.items() if value is not None)
    alike = sum(value == fair.worst for value, _ in known)
    worst = f"{alike} sites share the worst" if alike > 1 else f"The worst is {fair.worst_site}"
    said = (
        f"{label} at {len(known)} sites is {fmt.share(fair.mean)} on average, with a standard deviation of"
        f" {fmt.share(fair.spread)}. {worst}, {fmt.share(fair.worst)}."
    )
    return Plot(
        f"{label} at each site",
        _bars(known, label, fair.mean),
        said,
        f"{notes.AT_SITES} {said}{_unmeasured(sites)}",
    )


def site_strips(runs: Mapping[str, Sequence[Run]]) -> Plot | None:
    """A row of dots for each method, a dot for each site of each run."""
    measured = {method: [run.result.sites for run in own if run.result.sites] for method, own in runs.items()}
    measured = {method: own for method, own in measured.items() if any(one.fairness for one in own)}
    if not measured:
        return None
    label = fmt.label(next(iter(measured.values()))[0].metric)
    traces: list[Figure] = []
    means = []
    for row, (method, own) in enumerate(measured.items()):
        dots = [(value, name) for one in own for name, value in one.values.items() if value is not None]
        mean = fmt.Spread.of([value for value, _ in dots])
        assert mean is not None  # one of the runs has a fairness, hence a value
        means.append(f"{method} {fmt.share(mean.mean)}")
        traces += _strip(row, list(runs).index(method), dots, mean.mean)
    figure = framed(traces, label, "")
    figure["layout"].update(showlegend=False, hovermode="closest")
    figure["layout"]["xaxis"].update(showgrid=True, rangemode="tozero")
    figure["layout"]["yaxis"].update(
        tickvals=list(range(len(measured))),
        ticktext=[html.escape(method) for method in measured],
        range=[len(measured) - 0.4, -0.6],
        showgrid=False,
    )
    return Plot(
        f"{label} at each site",
        figure,
        f"{label} at single sites; the means are {fmt.several(means)}.",
        notes.STRIPS,
        height=round(5 + 2.4 * len(measured), 1),
    )


def _unmeasured(sites: AtSites) -> str:
    without = sum(value is None for value in sites.values.values())
    if not without:
        return ""
    return f" {without} more had nothing in {'its' if without == 1 else 'their'} share to measure it by."


def _bars(known: Sequence[tuple[float, str]], label: str, mean: float) -> Figure:
    values = [value for value, _ in known]
    few = len(known) <= _NAMED
    trace = {
        "type": "bar",
        "x": list(range(len(known))),
        "y": values,
        "marker": {"color": [colour(1 if place == 0 else 0) for place in range(len(known))]},
        "text": [f"{value:.2f}" for value in values] if few else None,
        "textposition": "outside",
        "cliponaxis": False,
        "hovertext": [html.escape(f"{name}: {fmt.share(value)}") for value, name in known],
        "hoverinfo": "text",
    }
    figure = framed([trace], "Sites, from the worst to the best", label)
    figure["layout"].update(showlegend=False, hovermode="closest", bargap=0.25 if few else 0.05)
    figure["layout"]["xaxis"].update(
        showticklabels=few,
        tickvals=list(range(len(known))),
        ticktext=[html.escape(fmt.short(name, _LONGEST_NAME)) for _, name in known],
        range=[-0.6, len(known) - 0.4],
        ticks="",
    )
    figure["layout"]["yaxis"].update(rangemode="tozero")
    rule(figure, "y", mean, f"mean: {fmt.share(mean)}")
    return figure


def _strip(row: int, place: int, dots: Sequence[tuple[float, str]], mean: float) -> list[Figure]:
    """One method's dots, moved up and down a little so that none hides another, and a line at their mean."""
    tint = colour(place)
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "x": [value for value, _ in dots],
            "y": [row + (number % 5 - 2) * 0.07 for number in range(len(dots))],
            "marker": {"color": tint, "size": 9, "opacity": 0.55},
            "cliponaxis": False,
            "hovertext": [html.escape(f"{name}: {fmt.share(value)}") for value, name in dots],
            "hoverinfo": "text",
        },
        {
            "type": "scatter",
            "mode": "lines",
            "x": [mean, mean],
            "y": [row - 0.32, row + 0.32],
            "line": {"color": "var(--ink)", "width": 2},
            "hoverinfo": "skip",
        },
    ]
