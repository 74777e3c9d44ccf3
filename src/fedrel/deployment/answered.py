"""What a site has answered: how often each question, apart from the record, the last answers, and what they cost.

A coordinator that crashed asks again. The same question, to the last bit of what came with it, gets the same answer
and costs nothing. Another question of the same kind in the same round is counted: two updates that differ by one
sentence would tell that sentence.

The counts lie in a file of their own, so that who removes the record does not reset them. It also has the length
and the last chain value of the record, and so shows that lines of it are missing.

Another file, the privacy budget, lists the noised sums of all answers that were computed from the site's text, of
every run and experiment, and ε is composed of them; of answers without noise, whose cost has no bound, it has the
number. It belongs to the site's folder, whatever is published or prepared in it, since nobody can tell how much of
the text is still the same. The record names ε and the numbers of answers after each of them: a file that was
removed, changed, or replaced by an earlier copy, is noticed.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrel.config.config_sections import DifferentialPrivacy
from fedrel.config.schema import Config
from fedrel.errors import UserError
from fedrel.federation.messages import Arrays, RefusedError, hash_arrays
from fedrel.federation.summands import NoiseShares
from fedrel.federation.wire import decode, encode
from fedrel.files import atomic_file, read_sealed, sealed, write_text
from fedrel.privacy.differential_privacy import Steps, composed_epsilon, local_steps

if TYPE_CHECKING:
    from fedrel.federation.flower.host import Request

UNNAMED = ""  # a question of which only the kind is known: it is never the same as another

_WHAT, _HINT = "a site's account of its privacy", "restore it from a copy: without it, nothing is answered"


def question(request: Request, arrays: Arrays, weights: str = "") -> str:
    """The SHA-256 of a question: what is asked, in which round, and all that came with it in the round.

    `weights` is the SHA-256 of the global weights, if they came; `arrays` is the rest.
    """
    whole = hashlib.sha256(json.dumps([request.round, request.phase, request.gives, weights]).encode())
    hash_arrays(whole, arrays)
    return whole.hexdigest()


def number(asked: str) -> int:
    """A question as a number of 64 bits, by which updates are named."""
    return int(asked[:16], 16)


class Answered:
    """The counts of a site: by experiment, round and kind, the questions that were answered."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def others(self, experiment: str, request: Request, asked: str) -> int:
        """How many other questions of this kind were answered in this round."""
        before = self._read()["asked"].get(experiment, {}).get(_kind(request), [])
        return sum(one != asked or one == UNNAMED for one in before)

    def add(self, experiment: str, request: Request, asked: str, examples: int | None = None) -> None:
        """Count a question; the same one again is not counted. `examples`: how many an update was made from."""
        with self._locked():
            tree = self._read()
            before = tree["asked"].setdefault(experiment, {}).setdefault(_kind(request), [])
            if asked == UNNAMED or asked not in before:
                before.append(asked)
                if examples is not None:
                    sent = tree.setdefault("updates", {}).setdefault(experiment, {})
                    sent.setdefault(str(request.round), {})[asked] = examples
                write_text(self._path, json.dumps(tree))

    def updates(self, experiment: str) -> dict[int, dict[int, int]]:
        """By round, the numbers of the questions that were answered with an update, and from how many examples."""
        sent = self._read().get("updates", {}).get(experiment, {})
        return {
            int(round_): {number(asked): examples for asked, examples in answers.items()}
            for round_, answers in sent.items()
        }

    def recorded(self, lines: int, chain: str) -> None:
        """Note how long the record is now."""
        with self._locked():
            tree = self._read()
            if lines >= tree.get("lines", 0):  # another process may have written a later line
                write_text(self._path, json.dumps(tree | {"lines": lines, "chain": chain}))

    @property
    def record(self) -> tuple[int, str] | None:
        """How many lines the record had when it was last written, and its chain value then; None before that."""
        tree = self._read()
        return (int(tree["lines"]), str(tree["chain"])) if "lines" in tree else None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Let no other process write meanwhile."""
        with self._path.with_suffix(".lock").open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _read(self) -> dict[str, Any]:
        try:
            tree: Any = json.loads(self._path.read_text(encoding="utf-8"))
            if not isinstance(tree, dict) or not isinstance(tree.get("asked"), dict):
                raise ValueError("another form")
            return dict(tree)
        except FileNotFoundError:
            return {"asked": {}}
        except (OSError, ValueError) as error:
            hint = "restore it from a copy: without the counts, nothing is answered"
            raise UserError(f"cannot be read: {error}", file=self._path, hint=hint) from error


class LastAnswers:
    """The answers of a run's current round as files, to be sent again if they are asked for again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, request: Request, asked: str) -> dict[str, Any] | None:
        """The answer to the same question, if it is still there."""
        try:
            return decode(self._file(request, asked).read_bytes())
        except (FileNotFoundError, RefusedError):  # a machine that failed may have left it incomplete
            return None

    def add(self, request: Request, asked: str, arrays: Arrays) -> None:
        """Keep an answer, and remove those of other rounds."""
        for file in self._folder.glob("*.safetensors"):
            if not file.name.startswith(f"{request.round:05}-"):
                file.unlink(missing_ok=True)
        with atomic_file(self._file(request, asked), flush=False) as part:
            part.write_bytes(encode(arrays))

    def _file(self, request: Request, asked: str) -> Path:
        return self._folder / f"{request.round:05}-{request.phase}-{asked[:32]}.safetensors"


@dataclass(frozen=True, slots=True)
class Spent:
    """What a site has told: answers with noise, the noised sums that they are made of, and answers without."""

    answers: int = 0
    steps: tuple[Steps, ...] = ()
    unnoised: int = 0

    def plus(self, steps: Steps) -> Spent:
        """After one more answer; steps of one kind are counted together."""
        counts = {replace(one, count=0): one.count for one in self.steps}
        kind = replace(steps, count=0)
        counts[kind] = counts.get(kind, 0) + steps.count
        made = tuple(replace(one, count=count) for one, count in counts.items())
        return Spent(self.answers + 1, made, self.unnoised)

    def epsilon(self, delta: float) -> float:
        """ε of all answers with noise."""
        return composed_epsilon(self.steps, delta)

    def recorded(self, delta: float) -> dict[str, float]:
        """What the record says of it; nothing before the first answer."""
        if not self.answers and not self.unnoised:
            return {}
        told = {"epsilon": round(self.epsilon(delta), 6), "answers": self.answers, "delta": delta}
        return told | {"unnoised": self.unnoised}


class PrivacyBudget:
    """The file of a site."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> Spent:
        """What was spent so far; nothing before the first answer."""
        if not self.path.exists():
            return Spent()
        fields = read_sealed(self.path, _WHAT, _HINT)
        try:
            steps = tuple(Steps(**one) for one in fields["steps"])
            return Spent(int(fields["answers"]), steps, int(fields.get("unnoised", 0)))
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"is not {_WHAT}: {error}", file=self.path, hint=_HINT) from error

    def write(self, spent: Spent) -> None:
        """Keep it; on return it is on the disk."""
        write_text(self.path, json.dumps(sealed(asdict(spent))))


def answer_cost(dp: DifferentialPrivacy, config: Config, examples: int, sites: int, numbers: int) -> Steps:
    """The noised sums of one answer that comes of training on so many examples.

    A site that noise on a sum hides cannot know how sites are drawn: it counts on no sampling. Of noise in shares,
    what is beyond Gaussian noise depends a little on how many sites and numbers there are, at most.
    """
    if dp.level == "sentence":
        return local_steps(dp, config.training, examples)
    return NoiseShares(dp, sites, numbers).cost if config.privacy.secure_sum else Steps(dp.noise)


def _kind(request: Request) -> str:
    return f"{request.round}/{request.phase}/{request.gives}"
