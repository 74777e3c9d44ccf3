"""The keys of secure sums between real sites: each signs with its registered key, and knows the others by theirs.

A site has the others' public keys in its own folder, `peers/NUMBER-NAME.pub`, from whoever made the federation. It
takes none from the coordinator, which could else stand in for every other site. Secrets of a session are random,
and are removed when a later round or another run begins: who gets hold of the site's disk later can uncover nothing
that was sent before.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from fedrel.deployment.folders import CoordinatorFolder, SiteFolder
from fedrel.deployment.keys import is_signed, signature, write_private
from fedrel.errors import UserError
from fedrel.privacy.secret_keys import KEY, TamperedError

COORDINATE = 48  # bytes of each of the two numbers of an ECDSA signature on P-384


@dataclass(frozen=True)
class KnownSites(ABC):
    """The sites' registered keys, as they lie in a folder of a federation, for one run."""

    folder: Path
    run: str

    def check(self, site: int, signed: bytes, text: bytes) -> None:
        """`TamperedError` unless this site has signed just this."""
        public = self.public_key(site)
        if public is None or not public.is_file():
            raise TamperedError("its public key is not in this folder")
        if len(signed) != 2 * COORDINATE or not is_signed(public, text, _to_der(signed)):
            raise TamperedError("not signed with its registered key")

    @abstractmethod
    def public_key(self, site: int) -> Path | None:
        """The file with a site's public key; None if there is none."""


class CoordinatorKeys(KnownSites):
    """The keys that the coordinator has registered."""

    def public_key(self, site: int) -> Path | None:
        """By the site's name."""
        folder = CoordinatorFolder(self.folder)
        sites = folder.federation.sites
        return folder.public_key(sites[site]) if 0 <= site < len(sites) else None


class SiteSecrets(KnownSites):
    """The keys that a site has of the others, and its own secrets."""

    def public_key(self, site: int) -> Path | None:
        """By the site's number; its own is among them."""
        return SiteFolder(self.folder).peer_key(site)

    def sign(self, site: int, text: bytes) -> bytes:
        """With the site's registered key."""
        return _from_der(signature(self.folder / "site.key", text))

    def of_session(self, site: int, round_: int, session: bytes, *, new: bool) -> bytes | None:
        """Random bytes that are made when the session begins; those of other rounds are removed then."""
        folder = SiteFolder(self.folder).state / self.run / "sums"
        file = folder / f"{round_:05}-{session.hex()}.key"
        found = file.read_bytes() if file.is_file() else b""
        if len(found) == KEY:
            return found
        if not new:
            return None
        for other in folder.glob("*.key"):
            if other == file or not other.name.startswith(f"{round_:05}-"):
                other.unlink(missing_ok=True)
        made = secrets.token_bytes(KEY)
        write_private(file, made)
        return made


def remove_secrets(folder: SiteFolder, *, but_of: str) -> None:
    """Remove the secrets of all runs but one; a sum of another that was not finished is tried again."""
    for file in folder.state.glob("*/sums/*.key"):
        if file.parent.parent.name != but_of:
            file.unlink(missing_ok=True)


def check_peer_keys(folder: SiteFolder) -> None:
    """Fail if a site lacks the public key of another: it would refuse every secure sum with it."""
    for number, name in enumerate(folder.sites):
        if folder.peer_key(number) is None:
            raise UserError(
                f"secure sums need the public key of {name}",
                file=folder.path / "peers",
                hint=f"get its site.pub from {name} itself, and put it there as {number}-{name}.pub",
            )


def _from_der(signed: str) -> bytes:
    from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

    return b"".join(part.to_bytes(COORDINATE, "big") for part in decode_dss_signature(bytes.fromhex(signed)))


def _to_der(signed: bytes) -> str:
    from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

    parts = (int.from_bytes(part, "big") for part in (signed[:COORDINATE], signed[COORDINATE:]))
    return encode_dss_signature(*parts).hex()
