"""Pages from templates: reports as files that need nothing but themselves, and pages of the live server.

A report, `report.html`, is a page about a run, one that compares methods, or one of what was found in documents.
Template, style and data are in one HTML file; the script that draws the plots lies beside it, once for all pages of
a folder, or in the page itself if it is to be mailed (`standalone`). The content security policy forbids every
other request and script. So a report can be opened without asking what it loads, whatever its texts contain.

Every string that a page gets is text, never HTML: the templates escape it. No page runs a script but those of this
package, by hash or by address, as its content security policy says.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from fedrel.files import write_text
from fedrel.runs.folder import read_run
from fedrel.studio import formatting as fmt
from fedrel.studio.comparison_page import comparison_page, link_below
from fedrel.studio.figures import Figure
from fedrel.studio.findings_page import findings_pages, relation_name
from fedrel.studio.run_page import run_page

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

    from fedrel.data.data_check import DataCheck


PLOTLY = "plotly.min.js"  # the name of the shared script

SCRIPTS = ("draw.js", "studio.js", "mark.js")
STYLE = "style.css"


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


def render(template: str, values: Mapping[str, Any], plotly: str | None = None) -> str:
    """A page as a file; every string in `values` is text, never HTML.

    `plotly` is where the plots' script lies, from the page's folder; without it, the page holds the script itself.
    """
    from markupsafe import Markup

    scripts = {"draw": source("draw.js")}
    if plotly is None:
        scripts = {"plotly": plotly_script(), **scripts}
    allowed = [*map(_hash, scripts.values()), *(["'self'", "file:"] if plotly else [])]
    policy = {
        "default-src": "'none'",
        "style-src": "'unsafe-inline'",
        "img-src": "data: blob:",  # saving a plot as a picture
        "script-src": " ".join(allowed),
    }
    return (
        environment()
        .get_template(template)
        .render(
            **values,
            live=None,
            style=Markup(source(STYLE)),
            scripts={name: Markup(text) for name, text in scripts.items()},
            plotly=plotly,
            policy="; ".join(f"{kind} {where}" for kind, where in policy.items()),
        )
    )


def render_live(template: str, values: Mapping[str, Any], live: Mapping[str, Any]) -> str:
    """A page of the live server, which sends the policy, style and scripts by themselves; or a part of a page."""
    return environment().get_template(template).render(**values, live=live, plotly="/static/plotly.min.js")


def render_part(template: str, macro: str, *values: Any) -> str:
    """What a macro of a template makes of these values: a part of a page that has changed."""
    return str(getattr(environment().get_template(template).module, macro)(*values))


def source(name: str) -> str:
    """The text of a style or script of this package."""
    loader = environment().loader
    assert loader is not None
    return loader.get_source(environment(), name)[0]


def plotly_script() -> str:
    """The source of the library that draws the plots."""
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


@cache
def environment() -> Environment:
    """The templates of this package, with all filters."""
    import jinja2

    found = jinja2.Environment(
        loader=jinja2.PackageLoader("fedrel.studio"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters.update(
        share=fmt.share, count=fmt.count, size=fmt.size, duration=fmt.duration, label=fmt.label
    )
    found.filters.update(embed=_embed, relation_name=relation_name, moment=_moment, day=_day)
    return found


def _script(folder: Path, page: Path) -> str:
    """Put the plots' script into a folder, unless it is there; its address from the page."""
    file, source = folder / PLOTLY, plotly_script()
    if not file.exists() or file.stat().st_size != len(source.encode()):
        write_text(file, source)
    return quote(Path(os.path.relpath(file, page.parent)).as_posix())


def _embed(figure: Figure) -> Markup:
    """A figure as JSON inside a script element, which only `<` could end too early."""
    from markupsafe import Markup

    text = json.dumps(figure, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c"))


def _moment(seconds: float) -> str:
    """A time as programs read it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _day(seconds: float) -> str:
    """A time as people read it, in this machine's time zone."""
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")


def _hash(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
