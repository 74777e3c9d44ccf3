"""Where a client process stands: at a real site, in the site's own folder, or at a table of a simulation."""

from __future__ import annotations

import json
import shutil
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from fedrel.federation.flower.gate import Gate, OpenGate
from fedrel.federation.flower.inbox import Inbox
from fedrel.federation.flower.reasons import Reason, Why
from fedrel.privacy.keyed import KEY_BYTES

if TYPE_CHECKING:
    from fedrel.config import Config
    from fedrel.federation.desk import Desk
    from fedrel.methods.base import Method

EARLIER_RUNS = 4  # of an experiment, whose memories a site keeps


class Place(Protocol):
    """What answering a question takes. Opening a desk loads torch; nothing else here does."""

    tells: bool
    """Whether the coordinator may read the journal."""

    @property
    def gate(self) -> Gate:
        """Who decides for the site."""

    def stranger(self, site: int) -> Reason | None:
        """Why a question for this site cannot be answered here, or None."""

    def method(self) -> Method:
        """The method that is run."""

    def sentences(self, site: int) -> int:
        """How many sentences the site holds."""

    def welcome(self, run: str) -> None:
        """A run's census: from now on it is this one that the site works for."""

    def inbox(self, run: str, site: int) -> Inbox:
        """Where messages wait until the round ends."""

    def desk(self, run: str) -> Desk:
        """Where the answer is made."""


class Simulated:
    """A table of a simulation, in what `hand_over` left: any of the run's sites may be asked for here."""

    tells = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.gate: Gate = OpenGate()

    def stranger(self, site: int) -> Reason | None:
        """All sites are at home here."""
        return None

    def method(self) -> Method:
        """The run's."""
        return self.desk("").method

    def sentences(self, site: int) -> int:
        """As the partition says."""
        return int(self.desk("").materials.partition.sizes[site])

    def welcome(self, run: str) -> None:
        """There is one run only."""

    def inbox(self, run: str, site: int) -> Inbox:
        """Each site has its own."""
        return Inbox(self._folder / "inbox" / f"{site:06}")

    def desk(self, run: str) -> Desk:
        """One for each process, which lives as long as the simulation."""
        return _resident(self._folder)


class Deployed:
    """A real site's folder. What is opened here, the site's own files say, and nothing that came from outside."""

    tells = False

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        place = json.loads((folder / "place.json").read_text(encoding="utf-8"))
        self._number = int(place["number"])

    @cached_property
    def gate(self) -> Gate:
        """What `site.toml` says."""
        from fedrel.deployment.gate import open_gate

        gate: Gate = open_gate(self._folder)
        return gate

    def stranger(self, site: int) -> Reason | None:
        """A site answers for itself only, and never for a method that would need another's text."""
        if site != self._number:
            return Reason(Why.WRONG_SITE, self._number)
        if self.method().simulation_only():
            return Reason(Why.SIMULATION)
        return Reason(Why.TRIPLE_KEY) if self._keyed and self._triple_key is None else None

    def method(self) -> Method:
        """As the site's own copy of the config names it."""
        from fedrel.methods.base import method

        return method(self._config.method, self._config.methods)

    def sentences(self, site: int) -> int:
        """What was prepared, of the site's own."""
        bounds = np.load(self._folder / "materials" / "bounds.npy", mmap_mode="r")
        return int(bounds[site + 1] - bounds[site])

    def welcome(self, run: str) -> None:
        """What earlier runs of the same experiment left is kept for the last few of them: they may be resumed."""
        digest = run.split("-", maxsplit=1)[0]
        others = (folder for folder in self._state.glob(f"{digest}-*") if folder.name != run)
        for folder in sorted(others, key=lambda folder: folder.stat().st_mtime)[:-EARLIER_RUNS]:
            shutil.rmtree(folder, ignore_errors=True)

    def inbox(self, run: str, site: int) -> Inbox:
        """In the run's own folder."""
        return Inbox(self._state / run / "inbox")

    def desk(self, run: str) -> Desk:
        """With the site's own materials and memories."""
        import torch

        from fedrel.federation.materials import Materials
        from fedrel.prepare import desk

        torch.set_num_threads(1)  # more would change the order of sums
        materials = Materials.load(self._folder / "materials")
        return desk(self._config, materials, self._state / run / "memory", self._triple_key)

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
        from fedrel.config import Config

        return Config.model_validate_json((self._folder / "config.json").read_bytes())

    @property
    def _state(self) -> Path:
        return self._folder / "state"


@cache
def _resident(folder: Path) -> Desk:
    from fedrel.federation.handover import take_over

    return take_over(folder)
