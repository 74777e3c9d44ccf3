"""`report.html`: a page about a run, one that sets methods side by side, one of what was found in documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedrel.files import write_text
from fedrel.runs.records import ReadDocument, read_run
from fedrel.studio.comparison_page import comparison_page
from fedrel.studio.examples import document_views
from fedrel.studio.page import render
from fedrel.studio.run_page import run_page


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
