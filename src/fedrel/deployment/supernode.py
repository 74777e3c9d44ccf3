"""A site's supernode, which answers the coordinator: the checks before it starts, and starting it."""

from __future__ import annotations

import socket
import ssl
import stat
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from fedrel.deployment.artefacts import Artefacts, differences
from fedrel.deployment.client_guard import write_programs
from fedrel.deployment.flower_programs import (
    PausesOfANode,
    Program,
    flower_environment,
    needs_flower,
    pull_soon_again,
    running,
    wait_until_free,
)
from fedrel.deployment.folders import SiteFolder
from fedrel.deployment.policy import SITE_TOML, check_names, check_tensors, objections, read_policy
from fedrel.deployment.record_check import check_whole
from fedrel.deployment.sum_keys import check_peer_keys
from fedrel.deployment.task_starter import SITE
from fedrel.errors import UserError
from fedrel.files import read_sealed
from fedrel.methods.by_name import check_secure_sum, method

SECRET = ("site.key", "runtime.key", "triple.key")
CONNECT_TIMEOUT = 10.0  # seconds for the coordinator to show its certificate
STALE = 90.0  # seconds; Flower counts a node as connected until it has missed two heartbeats, 60 in all
PAUSE = 5.0  # seconds between two attempts


def check_ready(folder: SiteFolder) -> None:
    """Fail fast if this site would reject every request."""
    folder.check()
    policy = read_policy(folder.path)
    check_names(policy, folder.path)
    published = Artefacts(folder.artefacts)
    published.check()
    if different := differences(folder.prepared_with, published.fingerprints):
        problem = f"the site was prepared with another {', '.join(different)} than is in its artefacts folder"
        raise UserError(problem, file=folder.path, hint="run `fedrel site prepare` again")
    if found := objections(policy, folder.published):
        problem = f"would refuse the experiment: {'; '.join(found)}"
        raise UserError(problem, file=folder.path / SITE_TOML, hint="allow it there, or do not take part")
    if folder.tensors.exists():  # sites that an earlier version prepared have no such list
        known = read_sealed(folder.tensors, "a list of tensors", "run `fedrel site prepare` again")
        check_tensors(policy, known.get("tensors", ()), folder.path)
    if folder.published.privacy.secure_sum:
        check_secure_sum(method(folder.published.method, folder.published.methods), folder.published)
        check_peer_keys(folder)
    for name in SECRET:
        check_secret(folder.path / name)
    check_whole(folder)


def check_coordinator(folder: SiteFolder) -> None:
    """Fail if the coordinator's certificate is not signed by the federation's authority.

    A coordinator that does not listen yet is no error: it may start later.
    """
    address = read_policy(folder.path).coordinator
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    context = trusted(folder.path / "ca.crt")
    try:
        with (
            socket.create_connection((host, int(port)), CONNECT_TIMEOUT) as plain,
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
    """A TLS context that accepts only servers whose certificate this authority has signed."""
    try:
        return ssl.create_default_context(cafile=authority)
    except OSError as error:
        hint = "it was made by `fedrel federation init`: ask whoever ran that for it"
        raise UserError(
            f"is not a certificate: {error.strerror or error}", file=authority, hint=hint
        ) from error


def check_secret(path: Path) -> None:
    """Fail if a key is missing, or if others on this machine can read it."""
    if not path.is_file():
        raise UserError("no such file", file=path, hint="it was made by `fedrel federation init`")
    if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise UserError("can be read by others", file=path, hint=f"run `chmod 600 {path}`")


def run_supernode(folder: SiteFolder, say: Callable[[str], None] = print) -> int:
    """Run Flower's supernode until it ends, and return its exit code.

    The coordinator counts a site that crashed as connected for a minute, and rejects its key in that time just
    as it rejects an unknown one. So a site that has answered before tries again for that long.
    """
    until = time.monotonic() + STALE
    port = read_policy(folder.path).local_port
    while True:
        wait_until_free(port, f"is {folder.name} running already? If not, change local_port in {SITE_TOML}")
        with running(supernode_program(folder)) as process:
            code = process.wait()
        if not code or not folder.audit.exists() or time.monotonic() > until:
            return code
        say(f"rejected: perhaps {folder.name} still counts as connected; trying again in {PAUSE:g} seconds")
        time.sleep(PAUSE)


def supernode_program(folder: SiteFolder) -> Program:
    """The supernode: it checks the coordinator's certificate, and the coordinator checks its key."""
    needs_flower()
    path, policy = folder.path.absolute(), read_policy(folder.path)
    write_programs(path / "flower" / "bin")
    command = [
        *(sys.executable, "-P", "-m", "fedrel.deployment.supernode"),
        *("--superlink", policy.coordinator, "--root-certificates", str(path / "ca.crt")),
        *("--auth-supernode-private-key", str(path / "site.key")),
        *("--host", "127.0.0.1", "--port", str(policy.local_port)),
        *("--ssl-ca-certfile", str(path / "ca.crt")),
        *("--ssl-certfile", str(path / "runtime.crt"), "--ssl-keyfile", str(path / "runtime.key")),
        *("--node-config", f'site="{path}"'),
    ]
    own = {"PATH": str(path / "flower" / "bin"), SITE: str(path)}
    return Program(command, flower_environment(path / "flower") | own)


def main() -> None:
    """Run `flower-supernode`, with shorter pauses between its looks for a request."""
    loop = "flwr.supernode.start_client_internal"
    vars(import_module(loop))["time"] = PausesOfANode()
    pull_soon_again(loop)
    import_module("flwr.supernode.cli.flower_supernode").flower_supernode()


if __name__ == "__main__":
    main()
