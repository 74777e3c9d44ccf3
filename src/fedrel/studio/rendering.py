"""Pages from templates: as files that need nothing but themselves, and as pages of the live server.

Every string that a page gets is text, never HTML: the templates escape it. No page runs a script but those of this
package, by hash or by address, as its content security policy says.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from fedrel.studio import formatting as fmt
from fedrel.studio.figures import Figure
from fedrel.studio.findings_page import relation_name

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

SCRIPTS = ("draw.js", "studio.js", "mark.js")
STYLE = "style.css"


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
