"""Where a client process stands: at a real site, in the site's own folder, or at a table of a simulation."""

from __future__ import annotations

import json
import shutil
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedrel.federation.flower.host import Gate, Refusal, RefusalCode, StoredMessages
from fedrel.privacy.keyed import KEY_BYTES

if TYPE_CHECKING:
    from fedrel.config.schema import Config
    from fedrel.federation.method import Method
    from fedrel.federation.runner import Runner


EARLIER_RUNS = 4  # of an experiment, whose memories a site keeps


class SiteHost:
    """A real site's folder. What is opened here, the site's own files say, and nothing that came from outside."""

    sends_journal = False

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        place = json.loads((folder / "place.json").read_text(encoding="utf-8"))
        self._number = int(place["number"])

    @cached_property
    def gate(self) -> Gate:
        """What `site.toml` says."""
        from fedrel.deployment.site_gate import open_gate

        gate: Gate = open_gate(self._folder)
        return gate

    def refusal_for(self, site: int) -> Refusal | None:
        """A site answers for itself only, and never for a method that would need another's text."""
        if site != self._number:
            return Refusal(RefusalCode.WRONG_SITE, self._number)
        if self.method().simulation_only():
            return Refusal(RefusalCode.SIMULATION)
        return Refusal(RefusalCode.TRIPLE_KEY) if self._keyed and self._triple_key is None else None

    def method(self) -> Method:
        """As the site's own copy of the config names it."""
        from fedrel.methods.registry import method

        return method(self._config.method, self._config.methods)

    def sentences(self, site: int) -> int:
        """What was prepared, of the site's own."""
        bounds = np.load(self._folder / "materials" / "bounds.npy", mmap_mode="r")
        return int(bounds[site + 1] - bounds[site])

    def begin_run(self, run: str) -> None:
        """What earlier runs of the same experiment left is kept for the last few of them: they may be resumed."""
        digest = run.split("-", maxsplit=1)[0]
        others = (folder for folder in self._state.glob(f"{digest}-*") if folder.name != run)
        for folder in sorted(others, key=lambda folder: folder.stat().st_mtime)[:-EARLIER_RUNS]:
            shutil.rmtree(folder, ignore_errors=True)

    def stored_messages(self, run: str, site: int) -> StoredMessages:
        """In the run's own folder."""
        return StoredMessages(self._state / run / "inbox")

    def runner(self, run: str) -> Runner:
        """With the site's own site_data and memories."""
        import torch

        from fedrel.federation.site_data import SiteData
        from fedrel.runs.engines import new_runner

        torch.set_num_threads(1)  # more would change the order of sums
        site_data = SiteData.load(self._folder / "materials", self._config.extractor.kind)
        return new_runner(self._config, site_data, self._state / run / "memory", self._triple_key)

    @property
    def _keyed(self) -> bool:
        """Whether facts go by names that the coordinator cannot read."""
        return bool(getattr(self.method(), "keyed_triples", False))

    @cached_property
    def _triple_key(self) -> bytes | None:
        """The key that the sites share; one of another length is none."""
        file = self._folder / "triple.key"
        key = file.read_bytes() if file.is_file() else b""
        return key if len(key) == KEY_BYTES else None

    @cached_property
    def _config(self) -> Config:
        from fedrel.config.schema import Config

        return Config.model_validate_json((self._folder / "config.json").read_bytes())

    @property
    def _state(self) -> Path:
        return self._folder / "state"
