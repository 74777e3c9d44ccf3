"""`fedrel federation init`: certificates and keys, a folder for the coordinator and one for each site.

Whoever runs it has every key in hand for a moment. It is best run by someone the sites trust, who then carries each
folder to where it belongs; a site may replace its key pair by one of its own and hand over the public half.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

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
from fedrel.files import write_text
from fedrel.privacy.keyed import KEY_BYTES

PORT = 9092  # where the coordinator listens
LOCAL_PORT = (
    9101  # of the first site, for its own processes; the others follow, so that all fit on one machine
)
HOME = "/srv/fedrel"  # where the units for systemd and Docker expect the folders

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_TEMPLATES = Path(__file__).parent / "templates"


def init_federation(folder: Path, sites: Sequence[str], host: str, port: int = PORT) -> None:
    """Write `coordinator`, `sites/NAME` for each site, and `authority`, which can add servers later."""
    check_host(host)
    _check_names(sites)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(
            "is not an empty folder", file=folder, hint="choose another folder: keys are not written over"
        )
    authority = new_authority(f"fedrel federation at {host}")
    authority.write(folder / "authority")
    triple_key = secrets.token_bytes(KEY_BYTES)
    _coordinator(folder / "coordinator", authority, sites, host, port)
    for number, name in enumerate(sites):
        bundle = folder / "sites" / name
        _site(bundle, authority, sites, number, host, port)
        write_private(bundle / "triple.key", triple_key)
        public = folder / "coordinator" / "sites" / f"{name}.pub"
        write_text(public, (bundle / "site.pub").read_text(encoding="utf-8"))
    for own in (folder / "authority", folder / "coordinator", *(folder / "sites").iterdir()):
        own.chmod(0o700)  # keys, and later text: nothing for others on the machine


def _coordinator(folder: Path, authority: Authority, sites: Sequence[str], host: str, port: int) -> None:
    import tomli_w

    hosts = list(dict.fromkeys((host, *LOCAL)))
    write_server_certificate(authority, hosts, folder / "server.crt", folder / "server.key")
    _trust(folder, authority)
    table = {"host": host, "port": port, "sites": list(sites)}
    write_text(folder / "federation.toml", tomli_w.dumps(table))
    _fill("coordinator", folder, host=host, port=port, sites=sites, home=f"{HOME}/coordinator")


def _site(
    folder: Path, authority: Authority, sites: Sequence[str], number: int, host: str, port: int
) -> None:
    name = sites[number]
    write_server_certificate(authority, LOCAL, folder / "runtime.crt", folder / "runtime.key")
    _trust(folder, authority)
    write_site_key(folder / "site.key", folder / "site.pub", name)
    place = {"number": number, "name": name, "sites": list(sites)}
    write_text(folder / "place.json", json.dumps(place))
    _fill(
        "site",
        folder,
        host=host,
        port=port,
        name=name,
        local_port=LOCAL_PORT + number,
        home=f"{HOME}/{name}",
    )


def _trust(folder: Path, authority: Authority) -> None:
    """The authority's certificate, without its key."""
    write_text(folder / "ca.crt", authority.pem().decode())


def _fill(kind: str, folder: Path, **values: object) -> None:
    """Write the templates of a kind of folder."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES / kind), undefined=StrictUndefined, keep_trailing_newline=True
    )
    for name in environment.list_templates():
        text = environment.get_template(name).render(version=version("fedrel"), **values)
        write_text(folder / name.replace("fedrel-site", f"fedrel-{values.get('name')}"), text)


def _check_names(sites: Sequence[str]) -> None:
    for name in sites:
        if not _NAME.fullmatch(name):
            problem = f"a site cannot be called {name!r}"
            raise UserError(problem, hint="use small letters, digits and hyphens, as charite-berlin")
    twice = {name for name in sites if list(sites).count(name) > 1}
    if twice or not sites:
        problem = f"the site {min(twice)!r} is named twice" if twice else "no site is named"
        raise UserError(problem, hint="name each once, separated by commas: --sites a,b,c")
