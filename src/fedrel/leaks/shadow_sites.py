"""Shadow sites: the attacker's own, which answer the requests of a round as the real ones did.

They run the site's half of the method itself, from the same global weights, on text of the same kind (Shokri et
al. 2017, Membership Inference Attacks Against Machine Learning Models). So the attacker sees what answers look like
where it knows the text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy.typing as npt

from fedrel.errors import UserError
from fedrel.federation.messages import Arrays, RefusedError
from fedrel.federation.runner import Runner
from fedrel.leaks.crossings import CLAIMS, DISTIL, PREDICTIONS, Request, View, view_of
from fedrel.methods.claims import Winners, winners
from fedrel.tensors.weights import Weights

_OF_SUMS = ("Session", "Peers", "PeerShares", "Survivors")  # shadow sites answer by themselves


class ShadowSites:
    """Answers of the shadow sites with these numbers, given by a runner that has their text.

    Its config has no secure sums: nobody hides the attacker's own answers from the attacker.
    """

    def __init__(self, runner: Runner, numbers: Sequence[int]) -> None:
        self._runner, self._numbers = runner, numbers

    def views(self, round_: int, requests: Sequence[Request], base: Weights, cohort: int) -> list[View]:
        """What the answers of each to the requests of a round show; claims win within cohorts of so many sites."""
        own: Mapping[int, Arrays] = {site: {} for site in self._numbers}
        shared: dict[str, npt.NDArray[Any]] = {}
        for request in requests:
            if request.phase in CLAIMS:
                own = self._won(round_, request, cohort)
            elif request.phase != DISTIL:
                shared |= {n: a for n, a in request.shared.items() if n.partition(".")[0] not in _OF_SUMS}
        phase = self._phase(requests)
        return [view_of(phase, site, arrays, base) for site, arrays in self._ask(phase, round_, shared, own)]

    def _phase(self, requests: Sequence[Request]) -> str:
        """The request that the answers are to; with secure sums, the one that their sum takes the place of."""
        asked = [one.phase for one in requests if one.phase == "train" or one.phase in PREDICTIONS]
        known = [*asked, *(name for name in (*PREDICTIONS, "train") if hasattr(self._runner.method, name))]
        if not known:
            raise UserError(
                "shadow sites cannot answer for this method: it neither trains nor predicts at sites",
                hint="choose fedavg, lazy-mil, feded or a method like them",
            )
        return known[0]

    def _won(self, round_: int, request: Request, cohort: int) -> dict[int, Arrays]:
        """Let the shadow sites claim: which claims of each won within its cohort."""
        kind = CLAIMS[request.phase]
        answers = self._ask(request.phase, round_, request.shared, {site: {} for site in self._numbers})
        won: dict[int, Winners] = {}
        for first in range(0, len(answers), cohort):
            won |= winners({site: kind.unpack(found, {}) for site, found in answers[first : first + cohort]})
        return {
            site: {f"Winners.{name}": array for name, array in one.pack().items()}
            for site, one in won.items()
        }

    def _ask(
        self, phase: str, round_: int, shared: Arrays, own: Mapping[int, Arrays]
    ) -> list[tuple[int, Arrays]]:
        self._runner.open(phase, round_, shared)
        found: list[tuple[int, Arrays]] = []
        for some in self._runner.groups(own):
            for site, answer in zip(some, self._runner.answers(phase, round_, some), strict=True):
                if isinstance(answer, RefusedError):
                    raise UserError(f"a shadow site refused {phase}: {answer}", hint="choose another method")
                found.append((site, answer[0]))
        return found
