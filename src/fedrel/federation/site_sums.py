"""What a site has for secure sums: its secrets, the keys by which it knows the others, and what it has answered.

What it has answered is noted on its disk, so that neither a restart nor a coordinator that asks again makes it
answer two requests that together would tell more than a sum.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import numpy as np

from fedrel.federation.messages import PeerError, RefusedError
from fedrel.privacy.secret_keys import TWO_THIRDS, Secrets, TamperedError
from fedrel.seeding import numpy_generator

if TYPE_CHECKING:
    from fedrel.federation.resident import ResidentModel


class SiteSums:
    """One site in one round. `min_cohort` is the larger of what it demands and what was agreed."""

    def __init__(self, model: ResidentModel, number: int, round_: int) -> None:
        self.number, self.round = number, round_
        demanded = model.rules.min_cohort if model.rules else 0
        self.min_cohort = max(model.privacy.min_cohort, demanded)
        self.threshold = model.privacy.threshold or TWO_THIRDS
        self._secrets, self._notes = model.secrets, model.notes
        self._seed = None if model.rules else model.seed

    @property
    def run(self) -> str:
        """The name of the run."""
        return self._own.run

    @property
    def noise(self) -> np.random.Generator:
        """Of its share of the noise on a sum: at a real site, seeded by the operating system."""
        if self._seed is None:
            return np.random.Generator(np.random.PCG64DXSM(secrets.randbits(256)))
        return numpy_generator(self._seed, "noise", self.round, self.number)

    def secret(self, session: bytes, *, new: bool = False) -> bytes:
        """The secret of a session; `RefusedError` if it is not `new`, and the site never gave keys for it."""
        found = self._own.of_session(self.number, self.round, session, new=new)
        if found is None:
            raise RefusedError("is about a session for which this site has given no keys")
        return found

    def sign(self, text: bytes) -> bytes:
        """The site's signature."""
        return self._own.sign(self.number, text)

    def check(self, site: int, signature: bytes, text: bytes, problem: str) -> None:
        """`PeerError` with this problem, unless another site has signed this text."""
        try:
            self._own.check(site, signature, text)
        except TamperedError as error:
            raise PeerError(f"{problem}: {error}", site) from error

    def once(self, purpose: str, digest: str) -> None:
        """Note that the site answers a request for this purpose; `RefusedError` if it answered another one."""
        if not self._notes.note(self.number, f"{self.round} {purpose}", digest):
            raise RefusedError(
                f"another request for its {purpose.partition(' ')[0]} was answered in this round: "
                "both together would tell more than a sum"
            )

    def noted(self, purpose: str) -> str | None:
        """What was noted for this purpose; None if nothing was."""
        return self._notes.noted(self.number, f"{self.round} {purpose}")

    @property
    def _own(self) -> Secrets:
        if self._secrets is None:
            raise RefusedError("this site has no keys for secure sums")
        return self._secrets
