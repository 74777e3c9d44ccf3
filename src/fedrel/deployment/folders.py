"""The two kinds of folder that a federation is made of: one for the coordinator, one for each site."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field, ValidationError

from fedrel.config.check import Section, check, read_toml
from fedrel.config.schema import Config
from fedrel.errors import UserError

_PLACE = "place.json"
CONNECTION = "fedrel"  # what Flower's own configuration calls the coordinator


class FederationTable(Section):
    """`federation.toml`: where the coordinator listens, and who takes part."""

    host: str
    port: int = Field(ge=1, le=65535)
    sites: list[str] = Field(min_length=1)
    """A site's number is its place here: randomness is derived from it, so the order stays as it is."""


@dataclass(frozen=True)
class CoordinatorFolder:
    """Where the coordinator keeps its keys, what it published, and its runs."""

    path: Path

    @cached_property
    def federation(self) -> FederationTable:
        """Who takes part."""
        file = self.path / "federation.toml"
        if not file.is_file():
            problem = "is not a coordinator's folder: it has no federation.toml"
            raise UserError(problem, file=self.path, hint="`fedrel federation init` makes one")
        return check(FederationTable, read_toml(file, FederationTable), file)

    @property
    def artefacts(self) -> Path:
        """What all sites must agree on."""
        return self.path / "artefacts"

    @property
    def preparation(self) -> Path:
        """The coordinator's own sentences as columns, and the vocabulary."""
        return self.path / "preparation"

    @property
    def runs(self) -> Path:
        """Run folders, by the experiment's name."""
        return self.path / "runs"

    @property
    def flower(self) -> Path:
        """What Flower's programs keep (FLWR_HOME)."""
        return self.path / "flower"

    @property
    def nodes(self) -> Path:
        """Which of Flower's nodes is which site, by the key each was registered with."""
        return self.path / "nodes.json"

    def public_key(self, site: str) -> Path:
        """By which the coordinator knows a site."""
        return self.path / "sites" / f"{site}.pub"


@dataclass(frozen=True)
class SiteFolder:
    """Where a site keeps its key, its policy, the published artefacts, its text as columns, and its record."""

    path: Path

    def check(self) -> None:
        """Refuse a folder that is not a site's."""
        _ = self._place

    @property
    def number(self) -> int:
        """Its place among the sites."""
        return int(self._place["number"])

    @property
    def name(self) -> str:
        """What it is called."""
        return str(self._place["name"])

    @property
    def sites(self) -> tuple[str, ...]:
        """All sites, itself among them."""
        return tuple(self._place["sites"])

    @property
    def artefacts(self) -> Path:
        """What the coordinator published, as it was brought here."""
        return self.path / "artefacts"

    @property
    def site_data(self) -> Path:
        """The site's own text as columns."""
        return self.path / "materials"

    @property
    def audit(self) -> Path:
        """The record of what left."""
        return self.path / "audit.jsonl"

    @property
    def flower(self) -> Path:
        """What Flower's programs keep (FLWR_HOME)."""
        return self.path / "flower"

    @property
    def seal(self) -> Path:
        """The fingerprints that the site_data were prepared with; written last, so its absence says: not ready."""
        return self.path / "artefacts.json"

    @cached_property
    def prepared_with(self) -> Mapping[str, str]:
        """The fingerprints of the artefacts that the site_data were prepared with."""
        if not self.seal.is_file():
            raise UserError("the site is not prepared", file=self.path, hint="run `fedrel site prepare`")
        return dict(_read(self.seal))

    @cached_property
    def fingerprint(self) -> str:
        """One over all of them: what the record calls an experiment."""
        return hashlib.sha256(json.dumps(sorted(self.prepared_with.items())).encode()).hexdigest()[:32]

    @cached_property
    def published(self) -> Config:
        """The experiment that the site was prepared for, its encoder where this site keeps it."""
        file = self.path / "config.json"
        try:
            return Config.model_validate(_read(file))
        except ValidationError as error:
            problem = f"is not a config: {error.errors()[0]['msg']}"
            raise UserError(problem, file=file, hint="run `fedrel site prepare` again") from error

    @cached_property
    def sentences(self) -> int:
        """How many training sentences the site holds."""
        bounds = np.load(self.site_data / "bounds.npy")
        return int(bounds[self.number + 1] - bounds[self.number])

    @cached_property
    def _place(self) -> dict[str, Any]:
        file = self.path / _PLACE
        if not file.is_file():
            problem = f"is not a site's folder: it has no {_PLACE}"
            raise UserError(problem, file=self.path, hint="`fedrel federation init` makes one for each site")
        place = _read(file)
        if missing := {"number", "name", "sites"} - place.keys():
            hint = "get it again from whoever ran `fedrel federation init`"
            raise UserError(f"lacks {min(missing)!r}", file=file, hint=hint)
        return place


def _read(file: Path) -> dict[str, Any]:
    try:
        tree = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"cannot be read: {error}", file=file) from error
    if not isinstance(tree, dict):
        raise UserError("expected a JSON object", file=file)
    return tree
