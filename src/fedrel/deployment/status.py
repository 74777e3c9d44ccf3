"""How a federation is doing (`fedrel federation status`): who is connected, last answers, the round, bytes."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrel.deployment.folders import CoordinatorFolder
from fedrel.deployment.superlink import status_by_site
from fedrel.errors import UserError
from fedrel.runs.folder import MetricsFile
from fedrel.studio.formatting import size

if TYPE_CHECKING:
    from rich.table import Table


NOT_RUNNING = "coordinator not running"


@dataclass(frozen=True)
class SiteStatus:
    """One site; what is not known is None."""

    name: str
    node: str  # what Flower says: registered, online, offline
    sentences: int | None
    last_answer: float | None  # seconds since the epoch
    round: int | None


@dataclass(frozen=True)
class Status:
    """A federation, and its latest run if there was one."""

    sites: list[SiteStatus]
    run: str | None
    round: int
    up: int  # bytes of all complete rounds
    down: int
    refused: list[str]  # in the last complete round


def federation_status(folder: CoordinatorFolder, nodes: Mapping[str, str] | None = None) -> Status:
    """What the superlink and the latest run's folder say; `nodes` is what the superlink said a moment ago."""
    names = folder.federation.sites
    known = connected(folder) if nodes is None else nodes
    out = _latest(folder)
    members = _members(out)
    rounds = MetricsFile(out / "metrics.jsonl").rounds() if out else []
    return Status(
        sites=[_site(name, known, members) for name in names],
        run=out.name if out else None,
        round=rounds[-1].round if rounds else 0,
        up=sum(one.bytes.up for one in rounds),
        down=sum(one.bytes.down for one in rounds),
        refused=[f"{names[one.site]} {one.reason}" for one in rounds[-1].refused] if rounds else [],
    )


def connected(folder: CoordinatorFolder) -> dict[str, str]:
    """What Flower says of each site's node, by the site's name."""
    try:
        return status_by_site(folder)
    except UserError:
        return dict.fromkeys(folder.federation.sites, NOT_RUNNING)


def status_table(found: Status) -> Table:
    """The same for a terminal."""
    from rich.table import Table

    title = f"run {found.run}, round {found.round}" if found.run else "no run yet"
    table = Table("site", "node", "sentences", "last answer", "round", title=title, title_justify="left")
    for site in found.sites:
        held = "" if site.sentences is None else f"{site.sentences:,}"
        table.add_row(site.name, site.node, held, _ago(site.last_answer), str(site.round or ""))
    refused = "".join(f"\nleft out: {one}" for one in found.refused)
    table.caption = f"from the sites {size(found.up)}, to the sites {size(found.down)}{refused}"
    table.caption_justify = "left"
    return table


def _site(name: str, known: Mapping[str, str], members: dict[str, dict[str, Any]]) -> SiteStatus:
    note = members.get(name, {})
    return SiteStatus(
        name=name,
        node=known.get(name, "not registered"),
        sentences=note.get("sentences"),
        last_answer=note.get("last_answer"),
        round=note.get("round"),
    )


def _latest(folder: CoordinatorFolder) -> Path | None:
    """The run folder that was written to last."""
    written = [(file.stat().st_mtime, file.parent) for file in folder.runs.glob("*/federation.json")]
    return max(written)[1] if written else None


def _members(out: Path | None) -> dict[str, dict[str, Any]]:
    """What a run's federation.json says of each site, by its name."""
    if out is None:
        return {}
    file = out / "federation.json"
    try:
        return {one["name"]: one for one in json.loads(file.read_text(encoding="utf-8"))["sites"]}
    except (ValueError, KeyError, TypeError) as error:
        problem = f"cannot be read: {error}"
        raise UserError(problem, file=file, hint="move that run's folder away") from error


def _ago(moment: float | None) -> str:
    if moment is None:
        return ""
    seconds = max(time.time() - moment, 0)
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"
