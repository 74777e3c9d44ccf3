"""Changes to a federation that runs: a site joins, a site leaves, certificates are renewed.

All of them are made by whoever keeps the folder `authority`, and take effect when the coordinator starts again. The
numbers of the other sites stay: their randomness is derived from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from shutil import copyfile

from fedrel.deployment.folders import CoordinatorFolder, check_site_names, write_peer_key, write_site
from fedrel.deployment.keys import (
    LOCAL,
    expiry_notes,
    read_authority,
    write_private,
    write_server_certificate,
)
from fedrel.errors import UserError
from fedrel.files import write_text


def add_site(authority: Path, coordinator: CoordinatorFolder, name: str, folder: Path) -> bool:
    """Write the folder of a new site and make it known to the coordinator; whether it has the sites' shared secret.

    That secret, `triple.key`, is with the sites: it is copied from a site's folder beside the new one, if there is
    one.
    """
    table = coordinator.federation
    if name in table.removed:
        problem, hint = f"{name!r} left the federation, and its number with it", "choose another name"
        raise UserError(problem, hint=hint)
    sites = [*table.sites, name]
    check_site_names(sites)
    if folder.exists():
        raise UserError(
            "is there already", file=folder, hint="keys are not overwritten: choose another folder"
        )
    write_site(folder, read_authority(authority), sites, len(table.sites), table.host, table.port)
    folder.chmod(0o700)
    copyfile(folder / "site.pub", coordinator.public_key(name))
    beside = sorted(path.parent for path in folder.parent.glob("*/peers"))
    write_peer_key([folder, *beside], len(table.sites), name, (folder / "site.pub").read_bytes())
    for other, number in table.members.items():
        if (key := coordinator.public_key(other)).is_file():
            write_peer_key([folder], number, other, key.read_bytes())
    _write_table(coordinator, sites, table.removed)
    secret = next(iter(sorted(folder.parent.glob("*/triple.key"))), None)
    if secret is not None:
        write_private(folder / "triple.key", secret.read_bytes())
    return secret is not None


def remove_site(coordinator: CoordinatorFolder, name: str) -> None:
    """Let a site take no part any more: its key is rejected once the coordinator has started again."""
    table = coordinator.federation
    if name not in table.members:
        problem = f"no site that takes part is called {name!r}"
        raise UserError(problem, hint=f"known: {', '.join(table.members)}")
    if len(table.members) == 1:
        raise UserError(f"{name!r} is the last site", hint="a federation needs one")
    _write_table(coordinator, table.sites, [*table.removed, name])
    coordinator.public_key(name).unlink(missing_ok=True)


def renew(authority: Path, folders: Sequence[Path]) -> list[Path]:
    """Sign new certificates, with new keys, for a coordinator's or sites' folders; returns what was written."""
    signer = read_authority(authority)
    expiry_notes([authority / "ca.crt"])
    written = []
    for folder in folders:
        if (folder / "federation.toml").is_file():
            host = CoordinatorFolder(folder).federation.host
            names, stem = list(dict.fromkeys((host, *LOCAL))), "server"
        elif (folder / "runtime.crt").is_file():
            names, stem = list(LOCAL), "runtime"
        else:
            hint = "name the coordinator's folder, or a site's"
            raise UserError("has no certificate to renew", file=folder, hint=hint)
        write_server_certificate(signer, names, folder / f"{stem}.crt", folder / f"{stem}.key")
        written.append(folder / f"{stem}.crt")
    return written


def _write_table(coordinator: CoordinatorFolder, sites: Sequence[str], removed: Sequence[str]) -> None:
    import tomli_w

    changed = {"sites": list(sites), "removed": list(removed)}
    fields = coordinator.federation.model_copy(update=changed).model_dump()
    write_text(coordinator.path / "federation.toml", tomli_w.dumps(fields))
