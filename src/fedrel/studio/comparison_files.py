"""A comparison as files for other programs: CSV for spreadsheets, LaTeX for papers."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from fedrel.runs.records import ComparisonRow
from fedrel.studio.formatting import NOTHING
from fedrel.studio.tables import Summary

_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet would compute
_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    NOTHING: "--",
}


def comparison_csv(rows: Sequence[ComparisonRow]) -> str:
    """A line for each run; numbers with all their digits. A name that looks like a formula is made text."""
    metrics = list(dict.fromkeys(name for row in rows for name in row.metrics))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    costs = ["rounds", "bytes_up", "bytes_down", "seconds", "selection_precision", "worst_site"]
    writer.writerow(["method", "seed", *map(_text, metrics), *costs])
    for row in rows:
        values = [row.metrics.get(name) for name in metrics]
        worst = row.sites.worst if row.sites else None
        spent = [row.rounds, row.bytes.up, row.bytes.down, row.seconds, row.selection_precision, worst]
        writer.writerow([_text(row.method), row.seed, *values, *spent])
    return out.getvalue()


def comparison_latex(summary: Summary) -> str:
    r"""The table of qualities as `tabular`, for the package booktabs: means and deviations, the best in bold."""
    columns = [column for column in summary.columns if column.quality]
    lines = [
        f"% {latex(summary.note)}",
        rf"\begin{{tabular}}{{l{'r' * len(columns)}}}",
        r"\toprule",
        " & ".join(["Method", *(latex(column.label) for column in columns)]) + r" \\",
        r"\midrule",
    ]
    for method in summary.methods:
        cells = [latex(column.text(method)) for column in columns]
        cells = [
            rf"\textbf{{{cell}}}" if method in column.best else cell
            for cell, column in zip(cells, columns, strict=True)
        ]
        lines.append(" & ".join([latex(method), *cells]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def latex(text: str) -> str:
    r"""A text in which nothing is a command.

    >>> latex("att_ra & 100 %")
    'att\\_ra \\& 100 \\%'
    """
    return "".join(_LATEX.get(one, one) for one in " ".join(text.split()))


def _text(name: str) -> str:
    return f"'{name}" if name.startswith(_FORMULA) else name
