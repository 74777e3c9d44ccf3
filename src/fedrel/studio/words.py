"""How to read each plot: one short paragraph in plain language, the same on every page that has the plot."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

CURVE = (
    "Each line follows a list of guesses from the surest to the least sure. From left to right more of the"
    " true facts have been found (recall); the height is the share of the guesses so far that is right"
    " (precision). Higher is better everywhere; the area under a line is its AUC."
)
DEVELOPMENT = (
    "How good the shared model is after each round, on data it does not train on. A line that rises earlier"
    " needs fewer rounds, hence less traffic; where it flattens, more rounds no longer help."
)
LOSS = (
    "What training makes smaller, averaged over the sites active in a round. It falls as the model fits its"
    " sentences; a fall while the development set gets worse is overfitting."
)
SELECTION = (
    "Of the sentences trained on in a round, the share that really state their fact rather than only mention"
    " its two names: how well signal is told from noise. It is known only for corpora that come with the"
    " truth of each sentence."
)
SENT_BY_SITES = "What left the sites in each round, by kind of message."
SENT_TO_SITES = "What the sites were sent in each round, on the same scale."
BOUNDARY = (
    "All bytes that the sites sent to the coordinator and were sent by it in a whole run. Shorter bars are"
    " cheaper; what a method asks of its sites beyond the weights shows as the difference."
)
KEPT = " The dotted line marks the round whose weights were kept."
MEAN_CURVES = " Lines are means over seeds."
BANDS = " Lines are means over seeds, bands one standard deviation."
LEGEND = " Select a name in the legend to hide or show its line."
CONFUSION = (
    "Each row is a relation, and what its test sentences were found to be. Blue on the diagonal is right,"
    " orange beside it is confused; the stronger, the larger the share of the row. Numbers are sentences."
)
RARE = " The rarest relations share the last row and column, whose corner holds confusions among them too."
BY_RELATION = "How well each method finds each relation, the most frequent first; the stronger, the better."
AT_SITES = (
    "Each site is tested on a share of the test set that is labelled as its own data are. The dotted line is"
    " the mean of the sites, all counted alike; the worst site stands out."
)
STRIPS = (
    "Each dot is a site of a run, tested on a share of the test set that is labelled as its own data are; the"
    " upright stroke is the sites' mean. The further left the leftmost dots, the less a method does for some."
)
BY_BYTES = (
    "The same development metric over all bytes that the sites had sent by then, on a logarithmic scale:"
    " further left is cheaper."
)
LABELS = "How many training examples of each relation each site holds; a gap is none. Colour goes by powers."
SIMILARITIES = {
    "first": "The mean cosine similarity of each class vector to the site's other ones, after the first round"
    " in which the site was active. The smaller, the stronger the colour: a vector that stands further apart."
    " Where this map looks like that of the labels, class vectors tell what a site has.",
    "last": "The same after the last round in which the site was active. Where the rows have become alike, the"
    " labels of all sites together shape the vectors.",
}
OBSERVATIONS = (
    "Rank correlations of how much there is of a class with its d, round by round: -1 is what the paper's"
    " authors saw, 0 is no connection."
)

NOTHING = "—"

_LABELS = {
    "auc": "AUC",
    "auc_2000": "AUC, first 2,000",
    "p_at_100": "P@100",
    "p_at_200": "P@200",
    "p_at_300": "P@300",
    "p_mean": "P@N mean",
    "max_f1": "Max F1",
    "f1": "F1",
    "precision": "Precision",
    "recall": "Recall",
    "macro_f1": "Macro F1",
    "accuracy": "Accuracy",
    "intra_f1": "F1 within sentences",
    "inter_f1": "F1 across sentences",
    "ign_f1": "Ign F1",
}


def label(metric: str) -> str:
    """A metric's name in a heading; a metric without one is shown under its own name."""
    return _LABELS.get(metric, metric)


def share(value: float | None) -> str:
    """A number between 0 and 1.

    >>> share(0.41249), share(None)
    ('0.412', '—')
    """
    return NOTHING if value is None or not math.isfinite(value) else f"{value:.3f}"


def count(value: float | None) -> str:
    """A number of things, which a mean may have made fractional.

    >>> count(12000), count(11.666)
    ('12,000', '11.7')
    """
    if value is None or not math.isfinite(value):
        return NOTHING
    return f"{value:,.0f}" if value == round(value) else f"{value:,.1f}"


def size(value: float | None) -> str:
    """A number of bytes.

    >>> size(999), size(1_234_567)
    ('999 B', '1.2 MB')
    """
    if value is None or not math.isfinite(value):
        return NOTHING
    for unit in ("B", "kB", "MB", "GB"):
        if abs(value) < 999.5:
            return f"{value:.0f} {unit}" if unit == "B" or abs(value) >= 99.95 else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:,.1f} TB"


def duration(seconds: float | None) -> str:
    """A length of time.

    >>> duration(0.04), duration(33.1), duration(3675)
    ('0.04 s', '33 s', '1 h 01 min')
    """
    if seconds is None or not math.isfinite(seconds):
        return NOTHING
    if seconds < 59.5:
        return f"{seconds:.0f} s" if seconds >= 9.95 else f"{seconds:.2g} s"
    if seconds < 3570:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02d} min"


def about_round(line: Mapping[str, Any], measure: str) -> str:
    """A line of metrics.jsonl in a few words; `measure` is the dev metric to name."""
    parts = [f"loss {line['loss']:.2f}"]
    if line["dev"] is not None:
        parts.append(f"dev {line['dev'][measure]:.3f}")
    if line["selection_precision"] is not None:
        parts.append(f"clean {line['selection_precision']:.0%}")
    parts.append(f"up {size(line['bytes']['up'])}")
    return " ".join(parts)


def several(values: Sequence[object], *, last: str = "and") -> str:
    """A list in a sentence.

    >>> several([1, 2, 3])
    '1, 2 and 3'
    """
    *first, final = map(str, values)
    return f"{', '.join(first)} {last} {final}" if first else final


def short(name: str, longest: int) -> str:
    """A name that fits beside a plot: of a long one, the beginning and the end.

    >>> short("/people/person/place_of_birth", 15)
    '/people…f_birth'
    """
    half = (longest - 1) // 2
    return name if len(name) <= longest else f"{name[:half]}…{name[-half:]}"


@dataclass(frozen=True, slots=True)
class Spread:
    """The mean of `runs` runs and their sample standard deviation (0 for a single run)."""

    mean: float
    std: float
    runs: int

    @classmethod
    def of(cls, values: Sequence[float | None]) -> Spread | None:
        """The spread of the known, finite values; None if there is none."""
        known = [value for value in values if value is not None and math.isfinite(value)]
        if not known:
            return None
        mean = math.fsum(known) / len(known)
        squares = math.fsum((value - mean) ** 2 for value in known)
        return cls(mean, math.sqrt(squares / max(len(known) - 1, 1)), len(known))
