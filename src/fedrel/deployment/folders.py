"""The folders of a federation, one for the coordinator and one for each site: what lies where, and making them."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import numpy as np
from pydantic import Field, ValidationError, model_validator

from fedrel.config.check import Section, check, read_toml
from fedrel.config.schema import Config
from fedrel.deployment.keys import (
    LOCAL,
    Authority,
    check_host,
    new_authority,
    write_private,
    write_server_certificate,
    write_site_key,
)
from fedrel.errors import UserError
from fedrel.files import read_sealed, write_text
from fedrel.privacy.site_rules import KEY_BYTES

PORT = 9092  # where the coordinator listens
LOCAL_PORT = 9101  # of the first site, for its own processes; the others follow: all may run on one machine
HOME = "/srv/fedrel"  # where the files for systemd and Docker expect the folders
CONNECTION = "fedrel"  # what Flower's own configuration calls the coordinator
_IDENTITY = "place.json"  # a site's name and number; the file name and its keys stay: sites in use have it
_SITE_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_TEMPLATES = Path(__file__).parent / "templates"
REQUIREMENTS = ("torch.txt", "requirements.txt")  # what a machine of the federation needs, by SHA-256


class FederationTable(Section):
    """`federation.toml`: where the coordinator listens, and who takes part."""

    host: str
    port: int = Field(ge=1, le=65535)
    sites: list[str] = Field(min_length=1)
    """A site's number is its position here. Randomness is derived from it, so the order must not change."""
    removed: list[str] = []
    """Sites that take no part any more. They stay in `sites`, so that the others keep their numbers."""
    sizes: dict[str, int] = {}
    """By site, the most sentences or documents that it may say it holds, as the sites agreed: its size class."""

    @model_validator(mode="after")
    def _sizes_are_of_sites(self) -> Self:
        for name in self.sizes:
            if name not in self.sites:
                raise ValueError(f"sizes names {name!r}, which is not one of the sites")
        return self

    @property
    def agreed(self) -> list[int | None]:
        """The sizes by site number; None where nothing was agreed."""
        return [self.sizes.get(name) for name in self.sites]

    @property
    def members(self) -> dict[str, int]:
        """The sites that take part, with their numbers."""
        return {name: number for number, name in enumerate(self.sites) if name not in self.removed}


@dataclass(frozen=True)
class CoordinatorFolder:
    """The coordinator's folder: its keys, what it published, its runs."""

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
        """Which of Flower's nodes is which site, by the key that each was registered with."""
        return self.path / "nodes.json"

    def public_key(self, site: str) -> Path:
        """The key that the coordinator knows a site by."""
        return self.path / "sites" / f"{site}.pub"


@dataclass(frozen=True)
class SiteFolder:
    """A site's folder: its key, its policy, the published artefacts, its text as columns, its record."""

    path: Path

    def check(self) -> None:
        """Fail if this is not a site's folder."""
        _ = self._identity

    @property
    def number(self) -> int:
        """Its number among the sites."""
        return int(self._identity["number"])

    @property
    def name(self) -> str:
        """Its name."""
        return str(self._identity["name"])

    @property
    def sites(self) -> tuple[str, ...]:
        """The names of all sites, its own included."""
        return tuple(self._identity["sites"])

    @property
    def artefacts(self) -> Path:
        """What the coordinator published, as it was copied here."""
        return self.path / "artefacts"

    @property
    def site_data(self) -> Path:
        """The site's own text as columns; the folder's name stays, for prepared sites have it."""
        return self.path / "materials"

    @property
    def tensors(self) -> Path:
        """The names of the model's tensors, which rules in site.toml may name."""
        return self.path / "tensors.json"

    @property
    def sizes_file(self) -> Path:
        """How much each site may say it holds, by its number, as it was published."""
        return self.path / "sizes.json"

    @cached_property
    def sizes(self) -> list[int | None]:
        """Of every site, the most that it may say it holds; nothing where no sizes were agreed."""
        if not self.sizes_file.exists():
            return []
        hint = "run `fedrel site prepare` again"
        return list(read_sealed(self.sizes_file, "the sizes that were agreed", hint)["sizes"])

    @property
    def state(self) -> Path:
        """By run, what methods keep between rounds and the messages of the current round."""
        return self.path / "state"

    @property
    def audit(self) -> Path:
        """The record of what left."""
        return self.path / "audit.jsonl"

    @property
    def answered(self) -> Path:
        """How often each question was answered, and how long the record is."""
        return self.path / "answered.json"

    @property
    def privacy(self) -> Path:
        """What its answers have cost so far, with differential privacy."""
        return self.path / "privacy.json"

    @property
    def flower(self) -> Path:
        """What Flower's programs keep (FLWR_HOME)."""
        return self.path / "flower"

    @property
    def seal(self) -> Path:
        """The fingerprints of `prepared_with`. It is written last: without it, the site is not prepared."""
        return self.path / "artefacts.json"

    @cached_property
    def prepared_with(self) -> Mapping[str, str]:
        """The fingerprints of the artefacts that the site's text was prepared with."""
        if not self.seal.is_file():
            raise UserError("the site is not prepared", file=self.path, hint="run `fedrel site prepare`")
        return dict(_read_json(self.seal))

    @cached_property
    def fingerprint(self) -> str:
        """One fingerprint over all of them: the record's name for an experiment."""
        return hashlib.sha256(json.dumps(sorted(self.prepared_with.items())).encode()).hexdigest()[:32]

    @cached_property
    def published(self) -> Config:
        """The experiment that the site was prepared for, with the path of its own copy of the encoder."""
        file = self.path / "config.json"
        try:
            return Config.model_validate(_read_json(file))
        except ValidationError as error:
            problem = f"is not a config: {error.errors()[0]['msg']}"
            raise UserError(problem, file=file, hint="run `fedrel site prepare` again") from error

    @cached_property
    def sentences(self) -> int:
        """How many training sentences the site holds."""
        bounds = np.load(self.site_data / "bounds.npy")
        return int(bounds[self.number + 1] - bounds[self.number])

    @cached_property
    def triple_key(self) -> bytes | None:
        """The secret that the sites share; None if it is missing or has another length."""
        file = self.path / "triple.key"
        key = file.read_bytes() if file.is_file() else b""
        return key if len(key) == KEY_BYTES else None

    def peer_key(self, site: int) -> Path | None:
        """The public key of a site, by its number; None if this site does not have it."""
        return next(iter(sorted((self.path / "peers").glob(f"{site}-*.pub"))), None)

    @cached_property
    def secret(self) -> bytes:
        """A secret of this site alone, made when it is first needed."""
        file = self.path / "shuffle.key"
        if not file.is_file():
            write_private(file, secrets.token_bytes(KEY_BYTES))
        return file.read_bytes()

    @cached_property
    def _identity(self) -> dict[str, Any]:
        file = self.path / _IDENTITY
        if not file.is_file():
            problem = f"is not a site's folder: it has no {_IDENTITY}"
            raise UserError(problem, file=self.path, hint="`fedrel federation init` makes one for each site")
        found = _read_json(file)
        if missing := {"number", "name", "sites"} - found.keys():
            hint = "get it again from whoever ran `fedrel federation init`"
            raise UserError(f"lacks {min(missing)!r}", file=file, hint=hint)
        return found


def init_federation(folder: Path, sites: Sequence[str], host: str, port: int = PORT) -> None:
    """`fedrel federation init`: write `coordinator`, `sites/NAME` for each site, and `authority`.

    `authority` can sign certificates for other servers later. Whoever runs this has every key for a moment. So
    it is best run by someone whom the sites trust, who then takes each folder to where it belongs. A site may
    replace its key pair by one of its own and give the coordinator the public half.
    """
    check_host(host)
    check_site_names(sites)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(
            "is not an empty folder", file=folder, hint="choose another folder: keys are not overwritten"
        )
    authority = new_authority(f"fedrel federation at {host}")
    authority.write(folder / "authority")
    triple_key = secrets.token_bytes(KEY_BYTES)
    _write_coordinator(folder / "coordinator", authority, sites, host, port)
    for number, name in enumerate(sites):
        own = folder / "sites" / name
        write_site(own, authority, sites, number, host, port)
        write_private(own / "triple.key", triple_key)
        public = folder / "coordinator" / "sites" / f"{name}.pub"
        write_text(public, (own / "site.pub").read_text(encoding="utf-8"))
    owns = [folder / "sites" / name for name in sites]
    for number, name in enumerate(sites):
        write_peer_key(owns, number, name, (owns[number] / "site.pub").read_bytes())
    for own in (folder / "authority", folder / "coordinator", *(folder / "sites").iterdir()):
        own.chmod(0o700)  # keys, and later text: nothing for others on the machine


def _write_coordinator(
    folder: Path, authority: Authority, sites: Sequence[str], host: str, port: int
) -> None:
    import tomli_w

    hosts = list(dict.fromkeys((host, *LOCAL)))
    write_server_certificate(authority, hosts, folder / "server.crt", folder / "server.key")
    _write_authority(folder, authority)
    table = {"host": host, "port": port, "sites": list(sites)}
    write_text(folder / "federation.toml", tomli_w.dumps(table))
    _write_templates("coordinator", folder, host=host, port=port, sites=sites, home=f"{HOME}/coordinator")


def write_site(
    folder: Path, authority: Authority, sites: Sequence[str], number: int, host: str, port: int
) -> None:
    """Write the folder of one site, with keys of its own."""
    name = sites[number]
    write_server_certificate(authority, LOCAL, folder / "runtime.crt", folder / "runtime.key")
    _write_authority(folder, authority)
    write_site_key(folder / "site.key", folder / "site.pub", name)
    write_text(folder / _IDENTITY, json.dumps({"number": number, "name": name, "sites": list(sites)}))
    _write_templates(
        "site",
        folder,
        host=host,
        port=port,
        name=name,
        local_port=LOCAL_PORT + number,
        home=f"{HOME}/{name}",
    )


def write_peer_key(folders: Iterable[Path], number: int, name: str, key: bytes) -> None:
    """Put a site's public key into the folders of sites: they know it by this, whatever the coordinator says."""
    for folder in folders:
        write_text(folder / "peers" / f"{number}-{name}.pub", key.decode())


def _write_authority(folder: Path, authority: Authority) -> None:
    """The authority's certificate, without its key."""
    write_text(folder / "ca.crt", authority.pem().decode())


def _write_templates(kind: str, folder: Path, **values: object) -> None:
    """Fill in the templates of one kind of folder."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES / kind), undefined=StrictUndefined, keep_trailing_newline=True
    )
    for name in environment.list_templates():
        text = environment.get_template(name).render(version=version("fedrel"), **values)
        write_text(folder / name.replace("fedrel-site", f"fedrel-{values.get('name')}"), text)
    for name in REQUIREMENTS:
        write_text(folder / name, (_TEMPLATES / name).read_text(encoding="utf-8"))


def check_site_names(sites: Sequence[str]) -> None:
    """Fail on names that cannot be folders and hosts, and on one that is there twice."""
    for name in sites:
        if not _SITE_NAME.fullmatch(name):
            problem = f"a site cannot be called {name!r}"
            raise UserError(problem, hint="use small letters, digits and hyphens, as charite-berlin")
    twice = {name for name in sites if list(sites).count(name) > 1}
    if twice or not sites:
        problem = f"the site {min(twice)!r} is named twice" if twice else "no site is named"
        raise UserError(problem, hint="name each once, separated by commas: --sites a,b,c")


def _read_json(file: Path) -> dict[str, Any]:
    try:
        tree = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"cannot be read: {error}", file=file) from error
    if not isinstance(tree, dict):
        raise UserError("expected a JSON object", file=file)
    return tree
