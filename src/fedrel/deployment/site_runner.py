"""A site's runner: the process that keeps the model and the columns, decides by the site's rules, and records.

    python -m fedrel.deployment.site_runner FOLDER

Requests come through the site's socket, as bytes that another process got from Flower (`passing`). Whatever asks,
the answer passes the gate here, before anything is computed and again before it leaves, and is recorded here:
nobody else has it. What is opened, the site's own folder says, and nothing from outside. The rules, the experiment
and the record are read anew for each request; only what is costly stays in memory.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from flwr.app import RecordDict

from fedrel.deployment.folders import SiteFolder
from fedrel.deployment.passing import (
    OtherUserError,
    accept,
    from_bytes,
    listening,
    receive,
    remove_socket,
    send,
    to_bytes,
)
from fedrel.deployment.policy import read_policy
from fedrel.deployment.site_gate import SiteGate
from fedrel.deployment.sum_keys import SiteSecrets, remove_secrets
from fedrel.errors import UserError
from fedrel.federation.flower.client import respond
from fedrel.federation.flower.host import Gate, Refusal, RefusalCode, StoredMessages
from fedrel.methods.by_name import method
from fedrel.privacy.site_rules import SiteRules
from fedrel.tensors.machine import available, cores

if TYPE_CHECKING:
    import socket

    from fedrel.federation.method import Method
    from fedrel.federation.runner import Runner

SLOW = 60.0  # seconds without a byte after which a connection is given up

_log = logging.getLogger(__name__)

EARLIER_RUNS = 4  # of an experiment, whose state a site keeps: they may be resumed


class SiteHost:
    """A real site's folder, in which its runner answers."""

    sends_journal = False

    def __init__(self, folder: Path) -> None:
        self._folder = SiteFolder(folder)
        self._folder.check()

    @cached_property
    def gate(self) -> Gate:
        """The rules of `site.toml`, as they are now."""
        return SiteGate(self._folder)

    def refusal_for(self, site: int) -> Refusal | None:
        """A site answers for itself only, and never for a method that would need another site's text."""
        if site != self._folder.number:
            return Refusal(RefusalCode.WRONG_SITE, self._folder.number)
        if self.method().simulation_only():
            return Refusal(RefusalCode.SIMULATION)
        keyed = getattr(self.method(), "keyed_triples", False) or self._folder.published.privacy.vouched
        return Refusal(RefusalCode.TRIPLE_KEY) if keyed and self._folder.triple_key is None else None

    def method(self) -> Method:
        """The method that the site's own copy of the config names."""
        config = self._folder.published
        return method(config.method, config.methods)

    def sentences(self, site: int) -> int:
        """How many training sentences were prepared."""
        return self._folder.sentences

    def begin_run(self, run: str) -> None:
        """Remove the state of the experiment's earlier runs but for a few, and secrets of all other runs' sums."""
        digest = run.split("-", maxsplit=1)[0]
        others = (folder for folder in self._folder.state.glob(f"{digest}-*") if folder.name != run)
        for folder in sorted(others, key=lambda folder: folder.stat().st_mtime)[:-EARLIER_RUNS]:
            shutil.rmtree(folder, ignore_errors=True)
        remove_secrets(self._folder, but_of=run)

    def stored_messages(self, run: str, site: int) -> StoredMessages:
        """In the run's own folder."""
        return StoredMessages(self._folder.state / run / "inbox")

    def runner(self, run: str) -> Runner:
        """A runner over the site's own text, with its state of this run."""
        import torch

        from fedrel.federation.site_data import SiteData
        from fedrel.runs.engines import new_runner

        torch.set_num_threads(1)  # more would change the order of sums
        config = self._folder.published
        site_data = SiteData.load(self._folder.site_data, config.extractor.kind)
        states = self._folder.state / run / "memory"
        return new_runner(config, site_data, states, self.rules(run))

    def rules(self, run: str) -> SiteRules:
        """What the site keeps to itself in a run, and what its `site.toml` says about claims and winners."""
        policy, folder = read_policy(self._folder.path), self._folder
        return SiteRules(
            secret=folder.secret,
            triple_key=folder.triple_key,
            run=run,
            decoys=policy.privacy.decoys,
            examples=policy.allow.examples,
            alone=policy.allow.alone,
            wins=folder.state / f"wins-{folder.fingerprint}.json",
            secrets=SiteSecrets(folder.path.absolute(), run),
            min_cohort=policy.privacy.min_cohort,
            sums=folder.state / f"sums-{folder.fingerprint}",
        )


class ResidentSite:
    """Answers for a site, with a runner that stays until the run or the site's data are others."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made_from: object = None
        self._runner: Runner | None = None

    def answer(self, request: bytes) -> bytes:
        """The answer to a request, or the refusal. A site has its machine to itself, so it may use all cores."""
        try:
            content = from_bytes(request)
        except Exception:  # whatever protobuf raises
            content = RecordDict()  # which is no request either: refused, and recorded
        with cores(available()):
            return to_bytes(respond(lambda: ResidentHost(self._folder, self), content))

    def runner(self, host: ResidentHost, run: str) -> Runner:
        """The runner of a run, made if what it is made from has changed."""
        made_from = host.made_from(run)
        if self._runner is None or made_from != self._made_from:
            self._runner = None  # before the next one needs the memory
            self._runner, self._made_from = host.new_runner(run), made_from
        return self._runner


class ResidentHost(SiteHost):
    """The site's folder as it is now, for one request."""

    def __init__(self, folder: Path, site: ResidentSite) -> None:
        super().__init__(folder)
        self._site = site

    def runner(self, run: str) -> Runner:
        """The one that stays in memory."""
        return self._site.runner(self, run)

    def new_runner(self, run: str) -> Runner:
        """Another one."""
        return super().runner(run)

    def made_from(self, run: str) -> tuple[Any, ...]:
        """All that a runner is made from: the run, the experiment, the site's rules, and the files of its data."""
        folder = self._folder
        files = (folder.seal, *sorted(path for path in folder.site_data.rglob("*") if path.is_file()))
        facts = [(path, (about := path.stat()).st_mtime_ns, about.st_ino, about.st_size) for path in files]
        return run, folder.published.model_dump_json(), self.rules(run), facts


def serve(folder: Path) -> None:
    """Answer what comes through the site's socket, one request after the other, until this process is ended."""
    with listening(folder) as server:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, partial(_leave, folder))
        import torch  # noqa: F401 - so that the first request need not wait for it

        import fedrel.runs.engines  # noqa: F401

        site = ResidentSite(folder)
        while True:
            try:
                with accept(server) as connection:
                    _serve_one(site, connection)
            except (OtherUserError, OSError, MemoryError) as error:
                _log.warning("a connection was closed: %s", error)


def _serve_one(site: ResidentSite, connection: socket.socket) -> None:
    connection.settimeout(SLOW)
    send(connection, site.answer(receive(connection)))


def _leave(folder: Path, *_: object) -> NoReturn:
    """End at once. An exception could be lost in whatever is under way, such as a compiler's own handlers.

    What is written is whole or not there, as it must be for a runner that is killed.
    """
    with suppress(OSError):
        remove_socket(folder)
    os._exit(0)


def main() -> None:
    """Run until a signal ends it."""
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.INFO)
    try:
        serve(Path(sys.argv[1]).absolute())
    except UserError as error:
        raise SystemExit(f"error: {error}") from error


if __name__ == "__main__":
    main()
