"""A real site, where its runner answers. What it opens, the site's own folder says, and nothing from outside.

Its ClientApp, which Flower calls, is `app`: it passes messages to the runner's process.
"""

from __future__ import annotations

import shutil
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from fedrel.deployment.folders import SiteFolder
from fedrel.deployment.passing import app
from fedrel.deployment.policy import read_policy
from fedrel.deployment.site_gate import SiteGate
from fedrel.deployment.sum_keys import SiteSecrets, remove_secrets
from fedrel.federation.flower.host import Gate, Refusal, RefusalCode, StoredMessages
from fedrel.methods.by_name import method
from fedrel.privacy.site_rules import SiteRules

if TYPE_CHECKING:
    from fedrel.federation.method import Method
    from fedrel.federation.runner import Runner

__all__ = ["SiteHost", "app"]

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
