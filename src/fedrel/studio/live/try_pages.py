"""The page on which text is tried with a model of the folder."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrel.errors import UserError
from fedrel.runs.records import ReadDocument
from fedrel.studio.findings_page import document_view
from fedrel.studio.live.page_maker import Addresses, PageMaker, sent_json
from fedrel.studio.live.predictor import Predictor
from fedrel.studio.report import render_live

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

LONGEST_TEXT, LONGEST_NAMES = 50_000, 20_000  # characters
MOST_MARKS, MOST_SHOWN = 500, 100  # marks in a text; models, and knowledge bases, to choose from
_KB = ".tsv"


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A trained model of the folder."""

    id: str
    folder: Path
    method: str
    unit: str
    types: list[str]  # of the entities that it asks about; empty where types do not matter


class TryPages:
    """Choosing a model, and asking it."""

    def __init__(self, maker: PageMaker, predictor: Predictor) -> None:
        self._maker, self._predictor = maker, predictor

    def addresses(self) -> Addresses:
        """What is answered here."""
        return [("GET", "/try", self.try_page), ("POST", "/try", self.find)]

    async def try_page(self, request: Request) -> Response:
        """The form."""
        models = await asyncio.to_thread(self._models)
        values = {
            "title": "Try it",
            "setting": "",
            "models": list(models.values()),
            "kbs": list(await asyncio.to_thread(self._kbs)),
            "longest": LONGEST_TEXT,
            "chosen": request.query_params.get("id", ""),
            "example": f"{self._maker.index.root.name or 'runs'}/first",
        }
        return await self._maker.page("try.html", values, here="/try")

    async def find(self, request: Request) -> Response:
        """What a model finds in a text, as a part of the page and as lines of JSON."""
        from starlette.responses import JSONResponse

        sent = await sent_json(request)
        asked = await asyncio.to_thread(self._checked, sent)
        found = await self._predictor.ask(asked)
        html = await asyncio.to_thread(_rendered, found)
        return JSONResponse({"html": html, "lines": found["lines"]})

    def _checked(self, sent: dict[str, Any]) -> dict[str, Any]:
        """The request for the process; what it opens was found here."""
        text, marks, names = sent.get("text"), sent.get("marks") or [], sent.get("names") or ""
        model, kb, threshold = sent.get("model"), sent.get("kb") or "", sent.get("threshold")
        if not isinstance(text, str) or not text.strip():
            raise UserError("there is no text", hint="Paste some.")
        if len(text) > LONGEST_TEXT:
            raise UserError(f"the text has more than {LONGEST_TEXT:,} characters", hint="Paste less of it.")
        if not isinstance(names, str) or len(names) > LONGEST_NAMES:
            raise UserError(f"the names have more than {LONGEST_NAMES:,} characters")
        if not isinstance(marks, list) or len(marks) > MOST_MARKS or not all(map(_is_mark, marks)):
            raise UserError(f"marks must be at most {MOST_MARKS} of [start, end, type]")
        if threshold is not None and not (isinstance(threshold, int | float) and 0 <= threshold <= 1):
            raise UserError("the least probability must be between 0 and 1")
        models, kbs = self._models(), self._kbs()
        if model not in models or (kb and kb not in kbs):
            raise UserError("there is no such model or knowledge base", hint="Load the page again.")
        named = [" ".join(name.split()) for name in names.splitlines()]
        return {
            "model": str(models[model].folder),
            "text": text,
            "marks": marks,
            "names": [name for name in named if name],
            "kb": str(kbs[kb]) if kb else "",
            "threshold": threshold,
        }

    def _models(self) -> dict[str, FoundModel]:
        """The models of finished runs; where each site has its own, all of them."""
        root = self._maker.index.root
        found: dict[str, FoundModel] = {}
        for row in self._maker.scanned():
            own = root / row.id / "model"
            if row.kind != "run" or row.state != "finished" or not own.is_dir() or own.is_symlink():
                continue
            for file in (
                sorted(own.glob("*/config.json"))
                if not (own / "config.json").exists()
                else [own / "config.json"]
            ):
                folder = file.parent
                name = row.id if folder == own else f"{row.id}: {folder.name}"
                about = _about(file)
                if about is not None and _stays_inside(folder, root) and len(found) < MOST_SHOWN:
                    unit = "documents" if "pairs" in about else "sentences"
                    found[name] = FoundModel(name, folder, str(about.get("method", "")), unit, _types(about))
        return found

    def _kbs(self) -> dict[str, Path]:
        """Tables of names in the folder and the folders right below it."""
        root = self._maker.index.root
        files = (file for pattern in (f"*{_KB}", f"*/*{_KB}") for file in sorted(root.glob(pattern)))
        inside = (
            file for file in files if file.is_file() and not file.is_symlink() and _stays_inside(file, root)
        )
        return {file.relative_to(root).as_posix(): file for file in islice(inside, MOST_SHOWN)}


def _rendered(found: dict[str, Any]) -> str:
    documents = [ReadDocument.model_validate(one) for one in found["documents"]]
    values = {
        "views": [document_view(one, f"document-{place}") for place, one in enumerate(documents, 1)],
        "findings": len(found["lines"]),
        "asked": found["asked"],
        "unit": found["unit"],
        "threshold": f"{found['threshold']:.3g}",
        "about": f"Threshold {found['threshold']:.3g}{', tuned on dev' if found['tuned'] else ''}.",
        "because": "looked most at" if found["unit"] == "documents" else "based on",
    }
    return render_live("found.html", values, {})


def _is_mark(mark: Any) -> bool:
    return isinstance(mark, list) and list(map(type, mark)) == [int, int, str]


def _about(file: Path) -> dict[str, Any] | None:
    try:
        about = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return about if isinstance(about, dict) else None


def _types(about: dict[str, Any]) -> list[str]:
    """The types of the pairs that a model of documents asks about."""
    pairs = (about.get("pairs") or {}).get("pair_types") or []
    return sorted({str(one) for pair in pairs for one in pair})


def _stays_inside(path: Path, root: Path) -> bool:
    """Whether neither it nor anything in it is a link that leads out of the folder."""
    inside = [path, *(Path(at) / name for at, folders, files in os.walk(path) for name in (*folders, *files))]
    return all(one.resolve().is_relative_to(root) for one in inside)
