"""What sites remember between rounds (SCAFFOLD, FedDyn, MOON, FedLCC): a file a site, on the site's own disk.

A run that is killed in the middle of a round does that round again, and its sites must then find what they
remembered before it. So a site's file carries its round, `read` looks for an earlier one, and `write` removes
only what no round can ask for again: at most two files a site stay, whatever the number of rounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file

from fedrel.errors import UserError
from fedrel.files import write_tensors
from fedrel.tensors.weights import Weights


class SiteStates:
    """A folder of site states, all of one model."""

    def __init__(self, folder: Path, model: str) -> None:
        self._folder, self._model = folder, model  # `model` tells this model's states from another's

    def read(self, site: int, round_: int) -> Weights | None:
        """What the site wrote last before this round, or None."""
        before = [file for file in self._files(site) if _round(file) < round_]
        if not before:
            return None
        try:
            with safe_open(before[-1], framework="numpy") as opened:
                about: Mapping[str, str] = opened.metadata() or {}
            tensors: Weights = load_file(before[-1])
        except (SafetensorError, OSError) as error:
            raise UserError(f"is not a site's state: {error}", file=before[-1]) from error
        if about.get("model") != self._model:
            raise UserError(
                "is the state of another model",
                file=before[-1],
                hint="remove the folder to begin without memories, or use the config it was made with",
            )
        return tensors

    def write(self, site: int, round_: int, tensors: Weights) -> None:
        """Keep a site's state of this round, and the one before it until this round can no longer be repeated."""
        folder = self._folder / f"{site:06}"
        write_tensors(folder / f"round-{round_:05}.safetensors", tensors, {"model": self._model})
        for file in [file for file in self._files(site) if _round(file) < round_][:-1]:
            file.unlink()

    def _files(self, site: int) -> list[Path]:
        return sorted((self._folder / f"{site:06}").glob("round-*.safetensors"))


def _round(file: Path) -> int:
    return int(file.stem.removeprefix("round-"))
