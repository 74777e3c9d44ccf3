"""The page of one run: its numbers in all and at sites, its convergence, its traffic, what it trained on."""

from __future__ import annotations

from typing import Any

from fedrel.runs.folder import Run
from fedrel.runs.records import Round
from fedrel.studio import figures, notes
from fedrel.studio import formatting as fmt
from fedrel.studio.breakdown import class_view, site_plot
from fedrel.studio.examples import case_tables, cases_to_show, document_views
from fedrel.studio.figures import Figure, Plot, Series
from fedrel.studio.formatting import flatten
from fedrel.studio.site_views import site_rounds, vector_view

_RECENT = 10  # rounds that the time left is reckoned by
_HEADLINES = ("auc", "p_mean", "max_f1", "f1", "precision", "recall")


def run_page(run: Run) -> dict[str, Any]:
    """The values of `run.html`."""
    result = run.result
    primary = result.primary
    return {
        "title": f"{result.method}, seed {result.seed}",
        "finished": run.finished,
        "setting": fmt.setting(run.config, run.label_counts),
        "run": run,
        "result": result,
        "primary": primary,
        "tiles": _tiles(run),
        "curve": _curve(run, primary),
        "classes": class_view(run.classes),
        "sites": site_plot(result.sites),
        "site_rounds": site_rounds(run),
        "convergence": _convergence(run, primary),
        "target": _target(run, primary),
        "traffic": _traffic(run),
        "kinds": _totals(run.rounds),
        "each": _each(run),
        "vectors": vector_view(run),
        "selection": _selection(run),
        "refused": [(one.round, refusal) for one in run.rounds for refusal in one.refused],
        "methods": [result.method],
        "cases": case_tables({result.method: cases_to_show(run)}),
        "documents": document_views(run.documents),
        "environment": flatten(run.environment),
        "data": _data(run),
    }


def _data(run: Run) -> dict[str, Any] | None:
    """The parts of the data, what was left out of them, and what is odd about them; None of an older run."""
    found = run.data_check
    if not found:
        return None
    unknown = found["unknown_tokens"]
    return {
        "unit": found["unit"],
        "parts": [
            (name, size, sum(count > 0 for count in found["relations"][name].values()))
            for name, size in found["sizes"].items()
        ],
        "unknown": fmt.NOTHING if unknown is None else f"{unknown:.1%}",
        "skipped": found["skipped"],
        "warnings": found["warnings"],
    }


def _tiles(run: Run) -> list[tuple[str, str]]:
    """The headline numbers: name and value."""
    result = run.result
    if not run.finished:
        return _tiles_so_far(run)
    shown = [name for name in _HEADLINES if name in result.metrics]
    tiles = [(fmt.label(name), fmt.share(result.metrics[name])) for name in shown or result.metrics]
    if result.sites is not None and result.sites.fairness is not None:
        tiles.append(("Worst site", fmt.share(result.sites.fairness.worst)))
    if result.selection_precision is not None:
        tiles.append(("Selection precision", fmt.share(result.selection_precision)))
    if result.epsilon is not None:
        tiles.append(("ε", f"{result.epsilon:.2f}"))
    tiles.append(("Rounds", fmt.count(result.rounds)))
    if run.target is not None:
        reached = result.to_target
        name = f"Rounds to {fmt.label(result.primary)} {run.target:g}"
        tiles.append((name, fmt.count(reached.round) if reached else fmt.NOTHING))
    return [
        *tiles,
        ("Sent by sites", fmt.size(result.bytes.up)),
        ("Sent to sites", fmt.size(result.bytes.down)),
        ("Time", fmt.duration(result.seconds)),
    ]


def _tiles_so_far(run: Run) -> list[tuple[str, str]]:
    """The same while a run is not finished: how far it is, how good on dev, and how long it will take."""
    result, recent = run.result, [one.seconds for one in run.rounds[-_RECENT:]]
    left = ((run.planned or 0) - result.rounds) * sum(recent) / len(recent) if recent else None
    best = [(f"Best {fmt.label(name)} on dev", fmt.share(value)) for name, value in result.dev_metric.items()]
    return [
        ("Round", f"{fmt.count(result.rounds)} of {fmt.count(run.planned)}"),
        *best,
        *([("In round", fmt.count(result.best_round))] if best else []),
        ("Sent by sites", fmt.size(result.bytes.up)),
        ("Sent to sites", fmt.size(result.bytes.down)),
        ("Time so far", fmt.duration(result.seconds)),
        ("Still to train, about", fmt.duration(left)),
    ]


def _target(run: Run, primary: str) -> str:
    """When the run reached its target, in a sentence; empty if it has no target."""
    if run.target is None or not run.finished:
        return ""
    aim = f"{fmt.label(primary)} {run.target:g} on the development set"
    reached = run.result.to_target
    if reached is None:
        return f"{aim}, the target, was not reached in {fmt.count(run.result.rounds)} rounds."
    return (
        f"{aim}, the target, was reached in round {reached.round}, after {fmt.size(reached.up)} from the"
        f" sites and {fmt.size(reached.down)} to them."
    )


def _curve(run: Run, primary: str) -> Plot | None:
    if run.curve is None or not run.curve.recall:
        return None
    line = Series(run.result.method, 0, run.curve.recall, run.curve.precision)
    return Plot(
        "Precision and recall",
        figures.precision_recall([line]),
        f"Precision over recall on the test set; {fmt.label(primary)}"
        f" {fmt.share(run.result.metrics.get(primary))}.",
        notes.CURVE,
    )


def _convergence(run: Run, primary: str) -> list[Plot]:
    """The development metric that the best round was chosen by, and the training loss."""
    name = fmt.label(primary)
    dev = figures.mean_series("dev", 0, [{one.round: (one.dev or {}).get(primary) for one in run.rounds}])
    loss = figures.mean_series("loss", 1, [{one.round: one.loss for one in run.rounds}])
    plots = []
    if dev.y:
        plots.append(
            Plot(
                f"{name} on the development set",
                _rounds(
                    run, figures.lines([dev], "Round", name, marked=run.result.best_round, target=run.target)
                ),
                f"{name} on the development set from {fmt.share(dev.y[0])} in round {dev.x[0]}"
                f" to {fmt.share(dev.y[-1])} in round {dev.x[-1]}.",
                notes.DEVELOPMENT + (notes.KEPT if run.result.best_round else ""),
            )
        )
    if loss.y:
        plots.append(
            Plot(
                "Training loss",
                _rounds(run, figures.lines([loss], "Round", "Loss")),
                f"Training loss from {fmt.share(loss.y[0])} in round {loss.x[0]}"
                f" to {fmt.share(loss.y[-1])} in round {loss.x[-1]}.",
                notes.LOSS,
            )
        )
    return plots


def _traffic(run: Run) -> list[Plot]:
    """Bytes a round by kind of message, one plot a direction, on one scale."""
    rounds = run.rounds
    totals = _totals(rounds)
    if not totals:
        return []
    numbers = [one.round for one in rounds]
    top = max(max(one.bytes.up, one.bytes.down) for one in rounds)
    plots = []
    for way, title, note in (
        ("up", "Sent by the sites", notes.SENT_BY_SITES),
        ("down", "Sent to the sites", notes.SENT_TO_SITES),
    ):
        bars = {
            kind: [
                getattr(one.bytes.by_kind[kind], way) if kind in one.bytes.by_kind else 0 for one in rounds
            ]
            for kind in totals
        }
        most = fmt.size(max(getattr(one.bytes, way) for one in rounds))
        figure = _rounds(run, figures.stacked_bytes(numbers, bars, top))
        plots.append(Plot(title, figure, f"{title}, bytes by round; at most {most} in a round.", note))
    return plots


def _each(run: Run) -> str:
    """What one site sends and receives in a round, in a sentence."""
    each = run.per_site_and_round
    if each is None:
        return ""
    return (
        f"In a round, one site sends {fmt.size(each.up)} and is sent {fmt.size(each.down)} on average;"
        f" encoding adds {fmt.size(each.framing)} to what it sends."
    )


def _totals(rounds: list[Round]) -> dict[str, tuple[int, int]]:
    """Bytes up and down of each kind of message over the whole run, the heaviest first."""
    totals: dict[str, tuple[int, int]] = {}
    for one in rounds:
        for kind, traffic in one.bytes.by_kind.items():
            up, down = totals.get(kind, (0, 0))
            totals[kind] = up + traffic.up, down + traffic.down
    return dict(sorted(totals.items(), key=lambda item: -sum(item[1])))


def _selection(run: Run) -> Plot | None:
    line = figures.mean_series(
        "selection precision", 2, [{one.round: one.selection_precision for one in run.rounds}]
    )
    if not line.y:
        return None
    return Plot(
        "Selection precision",
        _rounds(run, figures.lines([line], "Round", "Selection precision", unit=True)),
        f"Selection precision from {fmt.share(line.y[0])} in round {line.x[0]}"
        f" to {fmt.share(line.y[-1])} in round {line.x[-1]}.",
        notes.SELECTION,
    )


def _rounds(run: Run, figure: Figure) -> Figure:
    return figures.by_round(figure, max(run.planned or 0, run.result.rounds, run.rounds[-1].round))
