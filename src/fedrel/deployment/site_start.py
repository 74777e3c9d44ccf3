"""Before a site starts to answer: is it prepared, for what was published, and would it answer at all?"""

from __future__ import annotations

import socket
import ssl
import stat
import time
from collections.abc import Callable
from pathlib import Path

from fedrel.deployment.artefacts import Artefacts, differences
from fedrel.deployment.folders import SiteFolder
from fedrel.deployment.policy import NAME, check_names, objections, read_policy
from fedrel.deployment.programs import running, supernode, wait_until_free
from fedrel.errors import UserError
from fedrel.privacy.audit import sound

SECRET = ("site.key", "runtime.key", "triple.key")
PATIENCE = 10.0  # seconds, for the coordinator to show its certificate


def check_ready(folder: SiteFolder) -> None:
    """Refuse to start a site that could only refuse."""
    folder.check()
    policy = read_policy(folder.path)
    check_names(policy, folder.path)
    published = Artefacts(folder.artefacts)
    published.check()
    if different := differences(folder.prepared_with, published.fingerprints):
        problem = f"the site was prepared with another {', '.join(different)} than is in its artefacts folder"
        raise UserError(problem, file=folder.path, hint="run `fedrel site prepare` again")
    if found := objections(policy.allow, folder.published):
        problem = f"would refuse the experiment: {'; '.join(found)}"
        raise UserError(problem, file=folder.path / NAME, hint="allow it there, or do not take part")
    for name in SECRET:
        check_secret(folder.path / name)
    sound(folder.audit)


def check_coordinator(folder: SiteFolder) -> None:
    """Refuse a coordinator that the federation's authority does not vouch for; one that is away may come later."""
    address = read_policy(folder.path).coordinator
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    context = trusted(folder.path / "ca.crt")
    try:
        with (
            socket.create_connection((host, int(port)), PATIENCE) as plain,
            context.wrap_socket(plain, server_hostname=host),
        ):
            return
    except ssl.SSLCertVerificationError as error:
        problem = f"{address} cannot prove that it is the coordinator: {error.verify_message}"
        hint = "compare ca.crt with whoever made the federation, and the address with site.toml"
        raise UserError(problem, file=folder.path / "ca.crt", hint=hint) from error
    except OSError:
        return


def trusted(authority: Path) -> ssl.SSLContext:
    """What connects only to servers that this certificate's owner vouches for."""
    try:
        return ssl.create_default_context(cafile=authority)
    except OSError as error:
        hint = "it was made by `fedrel federation init`: ask whoever ran that for it"
        raise UserError(f"is no certificate: {error.strerror or error}", file=authority, hint=hint) from error


def check_secret(path: Path) -> None:
    """Refuse a key that is missing, or that others on this machine can read."""
    if not path.is_file():
        raise UserError("no such file", file=path, hint="it was made by `fedrel federation init`")
    if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise UserError("can be read by others", file=path, hint=f"run `chmod 600 {path}`")


STALE = 90.0  # seconds; Flower takes a node for connected until it has missed two heartbeats, 60 in all
PAUSE = 5.0  # seconds between two attempts


def answer(folder: SiteFolder, say: Callable[[str], None] = print) -> int:
    """Run Flower's supernode until it ends, and return its exit code.

    To a coordinator, a site that crashed stays connected for a minute, and who comes with its key in that time is
    turned away just like a stranger. So a site that has answered before tries again for that long.
    """
    until = time.monotonic() + STALE
    port = read_policy(folder.path).local_port
    while True:
        wait_until_free(port, f"is {folder.name} running already? If not, change local_port in {NAME}")
        with running(supernode(folder)) as process:
            code = process.wait()
        if not code or not folder.audit.exists() or time.monotonic() > until:
            return code
        say(
            f"turned away: perhaps {folder.name} still counts as connected; trying again in {PAUSE:g} seconds"
        )
        time.sleep(PAUSE)
