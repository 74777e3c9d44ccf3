"""Extractors by name: what one kind of extractor has to offer, and where all of them are found.

An extractor is one folder of this package. Its `__init__` has a subclass of `ExtractorKind` with a `name`, and no
other module names it. `extractor.kind` of a config is such a name. Installed packages declare theirs as entry
points of the group `fedrel.extractors`, a user's file is loaded by `--plugin file.py`, and `module:Class` names one
directly.

The layers below may not import extractors, but a config has to check an extractor's options. So it asks
`fedrel.config.plugins.registry("fedrel.extractors")`, which imports this module by its name at run time, for the
kind, and reads the `[extractor]` table with its `section` class. For the same reason the `__init__` of a folder
must be light: torch and transformers are imported inside the functions that need them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

from fedrel.config.plugins import Listed, Registry
from fedrel.config.schema import ExtractorSection
from fedrel.data.store import Corpus, Progress
from fedrel.errors import UserError
from fedrel.extractors.batches import Inputs, Ints

if TYPE_CHECKING:
    from fedrel.extractors.base import Extractor
    from fedrel.extractors.findings import Finding
    from fedrel.tensors.weights import Weights

SectionT = TypeVar("SectionT", bound=ExtractorSection)
InputsT = TypeVar("InputsT", bound=Inputs)


@dataclass(frozen=True)
class Trained:
    """A trained extractor from a model folder, and how it reads new text.

    `read` takes a corpus and a folder where it may keep what it makes of the corpus.
    """

    extractor: Extractor
    read: Callable[[Corpus, Path], Inputs]


class ExtractorKind(Listed, ABC, Generic[SectionT, InputsT]):
    """A kind of extractor: its options, its network, how it reads text, how it is saved and published.

    It has no state: everything is passed in.
    """

    name: str = ""
    section: ClassVar[type[ExtractorSection]]
    """Its options: the keys of `[extractor]` in a config."""
    unit: ClassVar[Literal["sentences", "documents"]] = "sentences"
    """What its corpora are made of."""
    has_kernels: ClassVar[bool] = False
    """Whether `Extractor.fit` can train by compiled kernels, for which threads do as well as processes."""
    has_precision: ClassVar[bool] = False
    """Whether `training.precision` matters: its matrix products can be in bfloat16."""
    has_encoder: ClassVar[bool] = False
    """Whether it stands on a pretrained encoder, so that the layers above may learn at a rate of their own."""
    unsaved: ClassVar[frozenset[str]] = frozenset()
    """Keys of its section that matter in training only, so that a saved model does not have them."""

    # In a run.

    @abstractmethod
    def inputs(
        self, section: SectionT, corpus: Corpus, train: Ints, progress: Progress | None = None
    ) -> InputsT:
        """A corpus as the extractor reads it; `train` are the rows that a vocabulary may be taken from."""

    @abstractmethod
    def open_inputs(self, folder: Path, corpus: Corpus, about: Mapping[str, Any]) -> InputsT:
        """The inputs that another process saved in a folder; `about` is what `Inputs.save` returned there."""

    @abstractmethod
    def build(self, section: SectionT, inputs: InputsT, relations: int, seed: int) -> Extractor:
        """A new extractor for so many relations, with initial weights drawn from the seed."""

    def compiling(self, head: str | None, *, noised: bool = False) -> AbstractContextManager[None]:
        """While the block runs, compile what training and scoring need, if they need that; nothing by default.

        `head` is the bag head that kernels train, none if training goes through the graph; `noised`: by DP-SGD.
        """
        return nullcontext()

    def unknown_share(self, section: SectionT, inputs: InputsT, rows: Ints) -> float | None:
        """The share of these rows' tokens that the vocabulary does not know; None where that is not known."""
        return None

    # A trained model as a folder.

    def save(self, folder: Path, extractor: Extractor, inputs: InputsT) -> Weights:
        """Write what a saved model needs besides weights; returns the weights to save with it."""
        return {**extractor.state(), **extractor.frozen()}

    @abstractmethod
    def load(self, folder: Path, options: Mapping[str, Any], relations: int, weights: Weights) -> Trained:
        """The model that `save` left in a folder; `options` are those of its section that were saved."""

    def find(
        self, extractor: Extractor, inputs: InputsT, rows: Ints, relations: Sequence[str], threshold: float
    ) -> Iterator[Finding]:
        """The relations in some documents that are at least so probable, document by document."""
        raise UserError(f"the extractor {self.name!r} does not say what it finds in documents")

    # Between real institutions.

    def between_sites(self, section: SectionT) -> SectionT:
        """The section as real sites may use it, with the defaults that tell least; what they may not is refused."""
        return section

    def publish(self, section: SectionT, folder: Path) -> dict[str, Any]:
        """Write what all sites must have, public things only; returns the options to publish instead of our own."""
        raise UserError(
            f"the extractor {self.name!r} is for simulations only: it publishes nothing for sites"
        )

    def at_coordinator(self, section: SectionT) -> SectionT:
        """The section that the coordinator runs with, once it has published: no path to files that it read."""
        return section

    def at_site(self, section: SectionT, published: Path, encoder: str | None) -> SectionT:
        """The section with the site's own copy of an encoder, which must be the one that was published."""
        return section

    def published_inputs(
        self,
        section: SectionT,
        corpus: Corpus,
        published: Path,
        folder: Path,
        progress: Progress | None = None,
    ) -> InputsT:
        """A corpus as the extractor reads it by what was published; what it makes of it is kept in `folder`."""
        raise NotImplementedError


EXTRACTORS: Registry[ExtractorKind[Any, Any]] = Registry(
    ExtractorKind,  # type: ignore[type-abstract]
    package="fedrel.extractors",
    group="fedrel.extractors",
    what="extractor",
    folders=True,
)


def extractor_kind(name: str) -> ExtractorKind[Any, Any]:
    """The kind of extractor that a config calls by this name."""
    return EXTRACTORS.find(name)()
