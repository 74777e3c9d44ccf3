"""A page that needs nothing but itself: template, style, scripts and data in one HTML file.

The page's content security policy forbids every request and every script but the two written into it, so a
report can be opened from a mail or a share without asking what it loads, whatever its texts contain.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedrel.studio import words
from fedrel.studio.figures import Figure

if TYPE_CHECKING:
    from markupsafe import Markup


@dataclass(frozen=True, slots=True)
class Plot:
    """A figure with its heading, what it shows in words (for who cannot see it) and how to read it.

    A figure whose size depends on what is in it says how high and at most how wide it is, in the page's rem.
    """

    title: str
    figure: Figure
    alt: str
    note: str
    height: float | None = None
    width: float | None = None


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
        share=words.share, count=words.count, size=words.size, duration=words.duration, label=words.label
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


def _embed(figure: Figure) -> Markup:
    """A figure as JSON inside a script element, which only `<` could end too early."""
    from markupsafe import Markup

    text = json.dumps(figure, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c"))


def _hash(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
