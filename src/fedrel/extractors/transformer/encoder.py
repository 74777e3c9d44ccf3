"""Running a Hugging Face encoder over packed pieces: texts one after the other, without padding between them.

Encoders of BERT's family run through layers of our own (`packed`). A pooling reads a few pieces of a text: the last
layer's queries, outputs and feed-forward network, ten of its twelve parts of the work, are computed for those only.
An encoder of any other architecture runs by its own forward pass, over texts of similar length that are padded.

Weights, norms and all that enters and leaves an encoder are float32, whatever the precision of its matrix products.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from fedrel.errors import UserError
from fedrel.extractors.base import Copies
from fedrel.extractors.transformer.encoder_loading import positions_begin
from fedrel.extractors.transformer.packed import packed_layers
from fedrel.extractors.transformer.packed.hashed_dropout import HashedDropout, key
from fedrel.extractors.transformer.packed.layer_pass import ACTIVATIONS
from fedrel.extractors.transformer.packed.packed_layers import PackedLayers

if TYPE_CHECKING:
    from transformers import PreTrainedModel


BERT_FAMILY = frozenset({"bert", "camembert", "electra", "roberta", "xlm-roberta"})  # one shape of layers

PASS_PIECES = 2048  # in one pass over padded texts: enough for full speed, few enough to stay in the cache
PADDING = 0.05  # the largest share of a pass that is padding

_EMBEDDINGS = 1 << 20  # a purpose of dropout that is no layer's number


class Encoder(nn.Module, ABC):
    """From the vectors of texts' pieces to their last states, in two steps; the first may be frozen.

    Text s is the pieces from starts[s] to starts[s + 1]. A seed means training, and decides the dropout.
    """

    precision: torch.dtype = torch.float32  # of matrix products

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model: Any = model
        self.width = int(model.config.hidden_size)

    def compute_in(self, precision: torch.dtype) -> None:
        """Compute matrix products in this precision."""
        self.precision = precision

    @abstractmethod
    def enter(self, vectors: Tensor, starts: Sequence[int], seed: int | None) -> Tensor:
        """The input of the remaining layers, [T, d], from the pieces' vectors, [T, e]."""

    @abstractmethod
    def read(self, states: Tensor, starts: Sequence[int], where: Tensor, seed: int | None) -> Tensor:
        """The last states of the pieces at `where` [Q], which ascends from text to text: [Q, d]."""

    @abstractmethod
    def attend(
        self, states: Tensor, starts: Sequence[int], where: Tensor, seed: int | None
    ) -> tuple[Tensor, list[Tensor]]:
        """The last states of all pieces, [T, d], and what the pieces at `where` attend to.

        That is the last layer's attention in each of h heads, after dropout: [h, Q_s, L_s] for each text s.
        """

    def copies(self) -> Copies | None:
        """The copies of weights that matrix products read, if they read any."""
        return None


class PackedEncoder(Encoder):
    """An encoder of BERT's family, by packed layers; embeddings and the lowest `frozen` layers may be frozen."""

    def __init__(self, model: PreTrainedModel, frozen: int = 0) -> None:
        super().__init__(model)
        layers = list(self.model.encoder.layer)
        if frozen > len(layers):
            problem = f"extractor.frozen_layers is {frozen}, but the encoder has {len(layers)} layers"
            raise UserError(problem, hint=f"set it to {len(layers)} or less")
        self.frozen = frozen
        self._below = PackedLayers(layers[:frozen], model.config)
        self._above = PackedLayers(layers[frozen:], model.config)
        for module in self._frozen_modules():
            module.requires_grad_(False)

    def enter(self, vectors: Tensor, starts: Sequence[int], seed: int | None) -> Tensor:
        """Embeddings and frozen layers."""
        bounds = torch.tensor(starts, device=vectors.device)
        place = torch.arange(len(vectors), device=vectors.device)
        place -= bounds[:-1].repeat_interleave(bounds.diff())
        given = {
            "inputs_embeds": vectors[None],
            "position_ids": (place + positions_begin(self.model.config))[None],
            "token_type_ids": torch.zeros_like(place)[None],
        }
        states: Tensor = _with_dropout(seed, partial(self.model.embeddings, **given))
        if hasattr(self.model, "embeddings_project"):  # ELECTRA's are narrower than its layers
            states = self.model.embeddings_project(states)
        return self._below.read(states[0], starts, torch.arange(len(place)), self._dtype(states), None)

    def read(self, states: Tensor, starts: Sequence[int], where: Tensor, seed: int | None) -> Tensor:
        """The layers that are not frozen."""
        return self._above.read(states, starts, where, self._dtype(states), seed)

    def attend(
        self, states: Tensor, starts: Sequence[int], where: Tensor, seed: int | None
    ) -> tuple[Tensor, list[Tensor]]:
        """The layers that are not frozen."""
        return self._above.attend(states, starts, where, self._dtype(states), seed)

    def compute_in(self, precision: torch.dtype) -> None:
        """Compute matrix products, and gradients that kernels read, in this precision."""
        super().compute_in(precision)
        self._above.give_gradients_in(precision)

    def copies(self) -> Copies | None:
        """Those of the layers that are not frozen."""
        return self._above.copies(self.precision)

    def train(self, mode: bool = True) -> Self:
        """Frozen layers stay in evaluation mode, so that the layers above always get the same for a text."""
        super().train(mode)
        for module in self._frozen_modules():
            module.eval()
        return self

    def _dtype(self, states: Tensor) -> torch.dtype:
        return states.dtype if self.precision is torch.float32 else self.precision

    def _frozen_modules(self) -> list[nn.Module]:
        if not self.frozen:
            return []
        project = getattr(self.model, "embeddings_project", None)
        below = [self.model.embeddings, *self.model.encoder.layer[: self.frozen]]
        return below if project is None else [*below, project]


class PaddedEncoder(Encoder):
    """An encoder of any other architecture, by its own forward pass over padded texts of similar length."""

    def enter(self, vectors: Tensor, starts: Sequence[int], seed: int | None) -> Tensor:
        """The vectors as they are."""
        return vectors

    def read(self, states: Tensor, starts: Sequence[int], where: Tensor, seed: int | None) -> Tensor:
        """The model's last states."""
        return self._last_states(states, starts, seed)[where]

    def attend(
        self, states: Tensor, starts: Sequence[int], where: Tensor, seed: int | None
    ) -> tuple[Tensor, list[Tensor]]:
        """The model's last states and attention."""
        attention: dict[int, Tensor] = {}
        bounds = torch.searchsorted(where, torch.tensor(starts, device=where.device)).tolist()

        def pick(group: Sequence[int], found: Tensor) -> list[Tensor]:
            own = []
            for place, text in enumerate(group):
                rows = where[bounds[text] : bounds[text + 1]] - starts[text]
                own.append(found[place, :, rows, : starts[text + 1] - starts[text]])
            return own

        last = self._last_states(states, starts, seed, pick, attention)
        return last, [attention[text] for text in range(len(starts) - 1)]

    def _last_states(
        self,
        states: Tensor,
        starts: Sequence[int],
        seed: int | None,
        pick: Callable[[Sequence[int], Tensor], list[Tensor]] | None = None,
        picked: dict[int, Tensor] | None = None,
    ) -> Tensor:
        """All last states, [T, d]; `pick` chooses from the attention of a group of texts what goes to `picked`."""
        lengths = [after - first for first, after in pairwise(starts)]
        many = starts[-1] > packed_layers.KEPT
        found: dict[int, Tensor] = {}
        for number, group in enumerate(alike(lengths)):
            texts = [states[starts[one] : starts[one + 1]] for one in group]
            run = partial(self._pass, None if seed is None else key(seed, number), group, pick)
            last, own = frugal(run, texts) if many else run(texts)
            for place, text in enumerate(group):
                found[text] = last[place, : lengths[text]]
                if picked is not None:
                    picked[text] = own[place]
        return torch.cat([found[text] for text in range(len(lengths))])

    def _pass(
        self,
        seed: int | None,
        group: Sequence[int],
        pick: Callable[[Sequence[int], Tensor], list[Tensor]] | None,
        texts: Sequence[Tensor],
    ) -> tuple[Tensor, list[Tensor]]:
        together, real = _padded(texts)
        halves = self.precision is torch.bfloat16
        with torch.autocast(together.device.type, torch.bfloat16, enabled=halves):
            run = partial(
                self.model, inputs_embeds=together, attention_mask=real, output_attentions=pick is not None
            )
            output = _with_dropout(seed, run)
        own = pick(group, output.attentions[-1].to(together.dtype)) if pick else []
        return output.last_hidden_state.to(together.dtype), own


def encoder(model: PreTrainedModel, frozen: int = 0) -> Encoder:
    """The class that runs a model of this architecture."""
    about = model.config
    if can_be_packed(model):
        return PackedEncoder(model, frozen)
    if frozen:
        problem = (
            f"extractor.frozen_layers is {frozen}, but the layers of {about.model_type!r} "
            "cannot be told apart here"
        )
        raise UserError(problem, hint=f"set it to 0, or name an encoder of {', '.join(sorted(BERT_FAMILY))}")
    return PaddedEncoder(model)


def can_be_packed(model: PreTrainedModel) -> bool:
    """Whether a model's layers are of BERT's shape, with an activation that has a backward pass here."""
    about = model.config
    absolute = getattr(about, "position_embedding_type", None) in (None, "absolute")
    return about.model_type in BERT_FAMILY and absolute and about.hidden_act in ACTIVATIONS


def frugal(function: Callable[..., Any], *given: Any) -> Any:
    """A function's value; with gradients on, its intermediate results are not kept but computed again for them.

    It must not draw from a generator that others use as well.
    """
    if not torch.is_grad_enabled():
        return function(*given)
    return checkpoint(function, *given, use_reentrant=False, preserve_rng_state=False)


def alike(lengths: Sequence[int]) -> Iterator[list[int]]:
    """The places of these lengths, each once, in groups of similar length: at most `PADDING` of one is padding."""
    group: list[int] = []
    padding = longest = 0
    for place in sorted(range(len(lengths)), key=lengths.__getitem__):
        length = lengths[place]
        padding += len(group) * (length - longest)
        pieces = (len(group) + 1) * length
        if group and (padding > PADDING * pieces or pieces > PASS_PIECES):
            yield group
            group, padding = [], 0
        group.append(place)
        longest = length
    if group:
        yield group


def _padded(texts: Sequence[Tensor]) -> tuple[Tensor, Tensor | None]:
    """Texts [L, e] as one tensor [B, L, e], and which of its pieces are not padding, [B, L]; none if all are."""
    together = nn.utils.rnn.pad_sequence(list(texts), batch_first=True)
    sizes = torch.tensor([len(text) for text in texts], device=together.device)
    real = torch.arange(together.shape[1], device=together.device) < sizes[:, None]
    return together, None if bool(real.all()) else real


def _with_dropout(seed: int | None, run: Callable[[], Any]) -> Any:
    """A function's value with the dropout that a seed decides."""
    if seed is None:
        return run()
    with HashedDropout(key(seed, _EMBEDDINGS)):
        return run()
