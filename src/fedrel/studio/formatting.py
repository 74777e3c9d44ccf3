"""How numbers, sizes, times and lists are written in reports, tables and messages."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrel.runs.records import LabelCounts, Round

Show = Callable[[float], str]

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


def several(values: Sequence[object], *, last: str = "and") -> str:
    """A list in a sentence.

    >>> several([1, 2, 3])
    '1, 2 and 3'
    """
    *first, final = map(str, values)
    return f"{', '.join(first)} {last} {final}" if first else final


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]], rule: str = "") -> str:
    r"""A table in Markdown; a `|` in a cell is text.

    `rule` is the line below the head, which aligns columns; by default all but the first hold numbers.

    >>> markdown_table(["", "AUC"], [["a|b", "0.4"]]).splitlines()
    ['|  | AUC |', '| --- | ---: |', '| a\\|b | 0.4 |']
    """
    first, *others = (
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in (head, *rows)
    )
    return "\n".join([first, rule or f"| --- |{' ---: |' * (len(head) - 1)}", *others])


def short(name: str, longest: int) -> str:
    """A name that fits beside a plot: of a long one, the beginning and the end.

    >>> short("/people/person/place_of_birth", 15)
    '/people…f_birth'
    """
    half = (longest - 1) // 2
    return name if len(name) <= longest else f"{name[:half]}…{name[-half:]}"


def setting(config: str, counts: LabelCounts | None) -> str:
    """What a run was about, in a line: its corpus, K sites, the share C of them in a round, and the partition.

    >>> setting('data = {corpus = "world", sentences = 900}\\npartition = {kind = "iid", sites = 6}', None)
    'built-in world of 900 sentences · K = 6 sites (iid)'
    """
    try:
        tree = tomllib.loads(config)
    except tomllib.TOMLDecodeError:
        return ""
    data, parts, training = (tree.get(name, {}) for name in ("data", "partition", "training"))
    said = []
    if data.get("corpus", "world") == "world":
        said.append(f"built-in world of {count(data.get('sentences', 12_000))} sentences")
    else:
        folder, form = Path(data.get("root", "")).name, data.get("format", "")
        said.append(f"{folder} ({form})" if folder not in ("", form) else form)
    sites = parts.get("sites")
    if parts.get("kind") in ("source", "file"):  # the data say how many
        sites = len(counts.sites) if counts and len(counts.sites) > 1 else None
    kind = {"source": "natural"}.get(parts.get("kind", "iid"), parts.get("kind", "iid"))
    if parts:
        said.append(f"K = {count(sites)} sites ({kind})" if sites else f"{kind} sites")
    if "fraction" in training:
        said.append(f"C = {training['fraction']:g}")
    return " · ".join(said)


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """A nested record as lines of text.

    >>> flatten({"versions": {"numpy": "2.4"}, "cores": [0, 1]})
    {'versions.numpy': '2.4', 'cores': '0, 1'}
    """
    flat: dict[str, str] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return flat


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

    def after_mean(self, show: Show, values: int, *, mark: str = "", zero: bool = True) -> str:
        """What is written after the mean: the deviation of several runs, and how many of the values are known.

        `mark` stands between them; without `zero`, runs that do not differ have no deviation.

        >>> Spread.of([0.25, 0.75, None]).after_mean(share, 3)
        ' ± 0.354 (2 of 3)'
        """
        deviation = f" ± {show(self.std)}" if self.runs > 1 and (zero or self.std > 0) else ""
        known = f" ({self.runs} of {values})" if self.runs < values else ""
        return deviation + mark + known


def median(values: Sequence[float | None]) -> float | None:
    """The middle one of the values, or the mean of the two middle ones; a missing one counts as the highest.

    So the median of rounds to a target is known once most runs have reached it, and None before.

    >>> median([3.0, 1.0, None]), median([None, 2.0, None])
    (3.0, None)
    """
    ordered = sorted(math.inf if value is None else value for value in values)
    if not ordered:
        return None
    middle = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
    return middle if math.isfinite(middle) else None


def about_round(one: Round, metric: str) -> str:
    """A round in a few words: loss, dev metric, how clean the chosen sentences were, ε so far, bytes sent."""
    dev = None if one.dev is None else one.dev.get(metric)
    parts = [] if one.began_from is None else [f"from round {one.began_from}"]
    if one.loss is not None:
        parts.append(f"loss {one.loss:.2f}")
    if dev is not None:
        parts.append(f"dev {dev:.3f}")
    if one.selection_precision is not None:
        parts.append(f"clean {one.selection_precision:.0%}")
    if one.privacy is not None:
        parts.append(f"ε {one.privacy.epsilon:.2f}")
    return " ".join([*parts, f"up {size(one.bytes.up)}"])
