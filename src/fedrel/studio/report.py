"""`report.html`: a page about a run, one that compares methods, and one of what was found in documents.

Template, style and data are in one HTML file; the script that draws the plots lies beside it, once for all pages of
a folder, or in the page itself if it is to be mailed (`standalone`). The content security policy forbids every
other request and script. So a report can be opened without asking what it loads, whatever its texts contain.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from fedrel.files import write_text
from fedrel.runs.folder import read_run
from fedrel.studio.comparison_page import comparison_page, link_below
from fedrel.studio.findings_page import findings_pages
from fedrel.studio.rendering import plotly_script, render
from fedrel.studio.run_page import run_page

if TYPE_CHECKING:
    from fedrel.data.data_check import DataCheck

PLOTLY = "plotly.min.js"  # the name of the shared script


def write_run_report(run: Path, *, shared: Path | None = None, standalone: bool = False) -> Path:
    """Write the page of one finished run into its folder; the path of the page.

    The plots' script lies once in `shared`; by default in the folder of the comparison that the run belongs to, if
    it is there, else in the run's own. A `standalone` page holds it itself.
    """
    page = run / "report.html"
    around = (run, *run.absolute().parents[:2])  # a comparison has its runs in METHOD/seed-N
    shared = shared or next((folder for folder in around if (folder / PLOTLY).exists()), run)
    script = None if standalone else _script(shared, page)
    write_text(page, render("run.html", run_page(read_run(run)), script))
    return page


def write_comparison_report(
    folder: Path, runs: Mapping[str, list[Path]], *, standalone: bool = False
) -> Path:
    """Write the page that compares methods, each with its runs (one a seed), into `folder`; its path."""
    page = folder / "report.html"
    read = {method: [read_run(run) for run in folders] for method, folders in runs.items()}
    script = None if standalone else _script(folder, page)
    write_text(page, render("comparison.html", comparison_page(read, partial(link_below, folder)), script))
    return page


def write_findings_report(
    page: Path,
    texts: Sequence[Mapping[str, Any]],
    about: Mapping[str, str],
    *,
    facts: int,
    unit: str = "document",
) -> None:
    """Write a page of what was found in texts, given as in `evidence.json`; of very many, several pages."""
    for path, values in findings_pages(page, texts, about, facts, unit):
        write_text(path, render("findings.html", values))


def write_data_page(page: Path, found: DataCheck, config: str) -> None:
    """Write a page of what was found when the data of a config were checked."""
    values = {"title": f"The data of {config}", "setting": "", "data": found, "parts": list(found.sizes)}
    write_text(page, render("data.html", values))


def _script(folder: Path, page: Path) -> str:
    """Put the plots' script into a folder, unless it is there; its address from the page."""
    file, source = folder / PLOTLY, plotly_script()
    if not file.exists() or file.stat().st_size != len(source.encode()):
        write_text(file, source)
    return quote(Path(os.path.relpath(file, page.parent)).as_posix())
