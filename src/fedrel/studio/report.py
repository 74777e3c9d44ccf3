"""`report.html`: a page about a run, one that compares methods, and one of what was found in documents.

A page needs nothing but itself: template, style, scripts and data are in one HTML file. Its content security policy
forbids every request, and every script but the two written into it. So a report can be opened from a mail or a
shared folder without asking what it loads, whatever its texts contain.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrel.files import write_text
from fedrel.runs.folder import read_run
from fedrel.runs.records import ReadDocument
from fedrel.studio import formatting as fmt
from fedrel.studio.comparison_page import comparison_page
from fedrel.studio.examples import document_views
from fedrel.studio.figures import Figure
from fedrel.studio.run_page import run_page

if TYPE_CHECKING:
    from markupsafe import Markup

    from fedrel.data.check import DataCheck


def write_run_report(run: Path) -> Path:
    """Write the page of one finished run into its folder; the path of the page."""
    page = run / "report.html"
    write_text(page, render("run.html", run_page(read_run(run))))
    return page


def write_comparison_report(folder: Path, runs: Mapping[str, list[Path]]) -> Path:
    """Write the page that compares methods, each with its runs (one a seed), into `folder`; its path."""
    page = folder / "report.html"
    read = {method: [read_run(run) for run in folders] for method, folders in runs.items()}
    write_text(page, render("comparison.html", comparison_page(folder, read)))
    return page


def write_findings_report(
    page: Path, shown: Sequence[Mapping[str, Any]], *, findings: int, documents: int
) -> None:
    """Write a page of new documents, given as in `evidence.json`, out of so many with so many findings in all."""
    views = document_views([ReadDocument.model_validate(one) for one in shown])
    values = {"title": "Relations in documents", "views": views, "findings": findings, "documents": documents}
    write_text(page, render("findings.html", values))


def write_data_page(page: Path, found: DataCheck, config: str) -> None:
    """Write a page of what was found when the data of a config were checked."""
    values = {"title": f"The data of {config}", "data": found, "parts": list(found.sizes)}
    write_text(page, render("data.html", values))


def render(template: str, values: Mapping[str, Any]) -> str:
    """Fill a template of this package; every string in `values` is text, never HTML."""
    import jinja2
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    loader = jinja2.PackageLoader("fedrel.studio")
    environment = jinja2.Environment(
        loader=loader,
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        share=fmt.share, count=fmt.count, size=fmt.size, duration=fmt.duration, label=fmt.label
    )
    environment.filters["embed"] = _embed
    scripts = {"plotly": get_plotlyjs(), "draw": loader.get_source(environment, "draw.js")[0]}
    return environment.get_template(template).render(
        **values,
        style=Markup(loader.get_source(environment, "style.css")[0]),
        scripts={name: Markup(text) for name, text in scripts.items()},
        policy="; ".join(
            [
                "default-src 'none'",
                "style-src 'unsafe-inline'",
                "img-src data: blob:",  # saving a plot as a picture
                f"script-src {' '.join(map(_hash, scripts.values()))}",
            ]
        ),
    )


def _embed(figure: Figure) -> Markup:
    """A figure as JSON inside a script element, which only `<` could end too early."""
    from markupsafe import Markup

    text = json.dumps(figure, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c"))


def _hash(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
