"""How a real site makes its answers tell less than a simulation's: secrets and limits that only the site knows.

Outside, a fact is a digest under a key of this run and round, and a sentence is a place in a shuffled list of this
round. So neither can be followed from one round to the next, and a place says nothing about neighbours in the text.

Digests of triples are the same at every site and mean nothing to the coordinator. Lazy MIL's coordinator must see
that two sites have the same triple, but not which one. Sites that share a key send HMAC-SHA256 digests (RFC 2104).
With a plain hash, the coordinator could hash the public knowledge base's triples and compare; without the key it
cannot.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedrel.files import write_text
from fedrel.privacy.secret_keys import Secrets

KEY_BYTES = 32


@dataclass(frozen=True)
class SiteRules:
    """The secrets of a site in a run, and what its `site.toml` says about claims and winners."""

    secret: bytes
    """Known to this site alone: it shuffles claims and makes up decoys."""
    triple_key: bytes | None = None
    """Known to all sites, and not to the coordinator: it turns facts into digests."""
    run: str = ""
    decoys: float = 0.0
    """Claims about nothing, for each of the site's own."""
    examples: int = 1
    alone: int = 3
    """In how many rounds a sentence may win with few others (`Wins`)."""
    wins: Path | None = None
    secrets: Secrets | None = None
    """What it signs with and derives the keys of secure sums from."""
    min_cohort: int = 0
    """The fewest sites that a secure sum may be over."""
    sums: Path | None = None
    """Where it notes what it answered for secure sums, in all runs of the experiment."""

    def round_key(self, round_: int) -> bytes | None:
        """The key of one round's digests, the same at all sites."""
        purpose = f"{self.run}/{round_}".encode()
        return None if self.triple_key is None else hmac.digest(self.triple_key, purpose, "sha256")

    def generator(self, round_: int, *purpose: str) -> np.random.Generator:
        """Randomness that nobody else can compute, the same whenever the round is done again."""
        text = "/".join((self.run, str(round_), *purpose)).encode()
        seed = int.from_bytes(hmac.digest(self.secret, text, "sha256"), "little")
        return np.random.Generator(np.random.PCG64(seed))


class Wins:
    """In which rounds each sentence won with few others: a coordinator that chooses them can single one out."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def add(self, round_: int, sentences: Iterable[int], most: int) -> list[int]:
        """Count a small set of winners; returns those of them that have won so in more than `most` rounds.

        The same round again is one round.
        """
        text = self._file.read_text(encoding="utf-8") if self._file.exists() else "{}"
        rounds: dict[str, list[int]] = json.loads(text)
        now = sorted({*rounds.get(str(round_), ()), *sentences})
        rounds[str(round_)] = now
        often = [one for one in now if sum(one in won for won in rounds.values()) > most]
        if not often:
            write_text(self._file, json.dumps(rounds))
        return often


def digests(key: bytes, triples: Iterable[tuple[str, str, str]]) -> npt.NDArray[np.uint8]:
    """The digest of each (head, relation, tail), as an [n, 32] array; a unit separator keeps names apart."""
    joined = b"".join(hmac.digest(key, "\x1f".join(triple).encode(), "sha256") for triple in triples)
    return np.frombuffer(joined, dtype=np.uint8).reshape(-1, 32)
