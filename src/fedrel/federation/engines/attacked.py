"""An engine with lying sites in it, for simulations: answers of some sites are changed on their way."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fedrel.federation.coordinator import Answer, Engine, Reported
from fedrel.federation.engines.around import WEIGHTS, EngineAround, update_in
from fedrel.federation.messages import Arrays
from fedrel.privacy.attacks import Attack, Knowledge, said_holdings
from fedrel.tensors.weights import Weights, dense

_MODEL, _WON = "Model.weights/", "Winners.index"


class AttackedEngine(EngineAround):
    """Another engine, whose `liars` lie as the attack says.

    `agreed` are the most sentences that each site may say it holds; None if nothing was agreed.
    """

    def __init__(
        self,
        inner: Engine,
        attack: Attack,
        liars: Collection[int],
        sizes: npt.NDArray[np.int64],
        triples: int,
        agreed: npt.NDArray[np.int64] | None = None,
    ) -> None:
        super().__init__(inner)
        self._attack, self._liars = attack, set(liars)
        self._triples, self._sizes = triples, sizes.copy()
        if attack.absent:
            self._sizes[list(self._liars)] = 0
        if attack.claims_all:
            for site in self._liars:
                said = said_holdings(int(sizes[site]), triples)
                self._sizes[site] = said if agreed is None else min(said, int(agreed[site]))
        self._base: Weights = {}
        self._first: dict[int, Weights] = {}  # by liar, what it would have sent when it first took part
        self._own_claims: dict[int, npt.NDArray[np.int32]] = {}  # by liar, the sentences of its honest claims

    def holdings(self) -> Reported:
        """What the sites say that they hold."""
        return Reported(self._sizes, self._triples)

    def ask(
        self, phase: str, round_: int, shared: Arrays, own: Mapping[int, Arrays]
    ) -> Iterator[tuple[int, Answer]]:
        """Ask all sites, then change what the liars among them answered."""
        model = {name.removeprefix(_MODEL): t for name, t in shared.items() if name.startswith(_MODEL)}
        self._base = model or self._base
        asked = {site: self._honest_request(site, arrays) for site, arrays in own.items()}
        answers = dict(self._inner.ask(phase, round_, shared, asked))
        updates: dict[int, Weights] = {
            site: dense(self._base, update)
            for site, answer in answers.items()
            if answer.arrays is not None and (update := update_in(answer.arrays, self._base)) is not None
        }
        honest = [weights for site, weights in updates.items() if site not in self._liars]
        for site, answer in answers.items():
            if site in self._liars and answer.arrays is not None:
                arrays = self._lie(site, answer.arrays, updates.get(site), honest)
                yield site, replace(answer, arrays=arrays)
            else:
                yield site, answer

    def _honest_request(self, site: int, arrays: Arrays) -> Arrays:
        """What the site itself is asked: of sentences that it does not have, none, so that it can train at all."""
        if site not in self._liars or _WON not in arrays or site not in self._own_claims:
            return arrays
        return {**arrays, _WON: np.sort(self._own_claims[site])}

    def _lie(
        self, site: int, arrays: Arrays, update: Weights | None, honest: list[Weights]
    ) -> dict[str, npt.NDArray[Any]]:
        lie = dict(arrays)
        if update is not None:
            first = self._first.setdefault(site, update)
            if self._attack.update is not None:
                known = Knowledge(self._base, update, honest or [update], first)
                lie = {name: array for name, array in lie.items() if not name.startswith(WEIGHTS)}
                lie |= {f"{WEIGHTS}{name}": t for name, t in self._attack.update(known).items()}
            if self._attack.claims_all:
                lie["examples"] = np.asarray(self._sizes[site])
        elif self._attack.claims_all and "triple" in lie:
            self._own_claims[site] = lie["index"]
            most = min(self._triples, int(self._sizes[site]))
            lie["triple"] = lie["index"] = np.arange(most, dtype=np.int32)
            lie["value"] = np.ones(most, np.float32)
        return lie
