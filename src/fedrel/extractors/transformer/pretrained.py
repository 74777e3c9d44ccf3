"""The base of extractors over a pretrained encoder: its piece vectors, how texts enter it, LoRA, how it is saved.

A batch uses a few hundred of a vocabulary's thirty thousand rows of vectors. As with PCNN's words, only those are
read, trained and sent (`RowEmbedding`). The whole table is a third of a small encoder's weights. The outputs of
frozen layers never change, so they are kept across epochs and rounds.

With LoRA (Hu et al. 2022), only low-rank updates of some of an encoder's matrices are trained and sent.
"""

from __future__ import annotations

import copy
import hashlib
import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from fedrel.errors import UserError
from fedrel.extractors.base import Copies, Extractor
from fedrel.extractors.row_tables import RowEmbedding
from fedrel.extractors.transformer.encoder import Encoder
from fedrel.extractors.transformer.encoder_loading import quiet

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

SCALING = 2  # alpha over rank: the factor of a low-rank update


class States:
    """A cache of tensors by what they were computed from, limited in bytes; the least recently used go first."""

    def __init__(self, limit: int) -> None:
        self.limit, self.bytes = limit, 0
        self._kept: OrderedDict[bytes, Tensor] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: bytes, make: Callable[[], Tensor]) -> Tensor:
        """The tensor of a key; `make` computes it if it is not there."""
        state = self._kept.pop(key, None)
        if state is None:
            state = make()
            self.bytes += state.nbytes
        self._kept[key] = state
        while self.bytes > self.limit:
            _, oldest = self._kept.popitem(last=False)
            self.bytes -= oldest.nbytes
        return state


KEPT_BYTES = 1 << 30  # of frozen layers' outputs


@lru_cache(maxsize=1)
def shared_states(frozen: bytes) -> States:
    """The cache for frozen layers with this digest, shared by all models and runs of this process."""
    return States(KEPT_BYTES)


class Pretrained(Extractor):
    """An extractor over an encoder whose word vectors are `words`; `keeps`: its lowest layers are frozen."""

    def __init__(
        self,
        tokeniser: PreTrainedTokenizerFast,
        words: TrainedWords | FrozenWords,
        encoder: Encoder,
        *,
        keeps: bool,
        adapted: bool = False,
    ) -> None:
        super().__init__()
        encoder.model.set_input_embeddings(nn.Identity())  # `words` has them
        self.words, self.encoder = words, encoder
        self._tokeniser, self._adapted = tokeniser, adapted
        self._states = shared_states(self._frozen()) if keeps else None

    def is_new(self, name: str) -> bool:
        """Whether a weight stands above the encoder."""
        return not name.startswith(("encoder.", "words."))

    def compute_in(self, precision: str) -> None:
        """Compute the encoder's matrix products in this precision."""
        self.encoder.compute_in(getattr(torch, precision))

    def copies(self) -> Copies | None:
        """Those of the encoder."""
        return self.encoder.copies()

    @torch.no_grad()
    def export(self, folder: Path) -> None:
        """Write the encoder and its tokeniser as a folder that `transformers` loads and a config may name."""
        model = without_lora(self.encoder.model) if self._adapted else self.encoder.model
        table = self.words.table()
        model.set_input_embeddings(nn.Embedding(len(table), table.shape[1], _weight=table))
        model.config.vocab_size = len(table)
        try:
            with quiet():
                model.save_pretrained(folder)
                self._tokeniser.save_pretrained(folder)
        finally:
            model.set_input_embeddings(nn.Identity())

    def _frozen(self) -> bytes:
        """A digest of all that decides the outputs of frozen layers."""
        whole = hashlib.sha256(self.encoder.model.config.to_json_string().encode())
        for name, tensor in (*self.words.state_dict().items(), *self.encoder.model.named_parameters()):
            if not tensor.requires_grad:
                whole.update(name.encode())
                whole.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy())
        return whole.digest()

    def _enter(self, ids: Tensor, starts: Sequence[int], seed: int | None) -> Tensor:
        """The input of the trained layers, [T, d], for packed texts; a seed means training, with dropout."""
        if self.training != (seed is not None):
            self.train(seed is not None)
        if self._states is not None:
            return self._recall(ids, starts, self._states)
        values, place = self.words.distinct(ids)
        return self.encoder.enter(F.embedding(place, values), starts, seed)

    def _recall(self, ids: Tensor, starts: Sequence[int], kept: States) -> Tensor:
        """From the outputs of frozen layers, kept in the precision of products.

        These read each text by itself, so that the result is the same to the bit in any batch, and whether or not
        it was kept.
        """
        pieces, precision = ids.cpu().numpy(), self.encoder.precision

        @torch.inference_mode(False)
        @torch.no_grad()
        def frozen(text: Tensor) -> Tensor:
            values, place = self.words.distinct(text)
            states = self.encoder.enter(values[place], [0, len(text)], None)
            return states if precision is torch.float32 else states.to(precision)

        spans = [slice(first, after) for first, after in pairwise(starts)]
        found = [
            kept.get(str(precision).encode() + pieces[span].tobytes(), partial(frozen, ids[span]))
            for span in spans
        ]
        return torch.cat(found).to(self.classifier.weight.dtype)


def seed_of(generator: torch.Generator | None) -> int | None:
    """The seed of a pass's dropout: the generator's next number; none without a generator."""
    if generator is None:
        return None
    return int(torch.randint(1 << 62, (), generator=generator, device=generator.device))


class TrainedWords(RowEmbedding):
    """All rows are trained."""

    def __init__(self, table: Tensor) -> None:
        super().__init__(
            F.pad(table, (0, 0, 1, 0))
        )  # the gap is a row of its own, since piece 0 has a vector

    def distinct(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """The rows that `ids` use, each once, [u, e]; and for each id its place among them."""
        return super().distinct(ids + 1)

    def table(self) -> Tensor:
        """The vector of every piece: a copy."""
        return self.dense()[1:]


class FrozenWords(nn.Module):
    """No row is trained, or those of the markers alone."""

    slots: Tensor  # [V], which marker a piece is, or -1

    def __init__(self, table: Tensor, markers: Sequence[int], *, train_markers: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(table, requires_grad=False)
        rows = torch.tensor(markers, dtype=torch.int64)
        self.markers = nn.Parameter(table[rows].clone()) if train_markers and len(markers) else None
        slots = torch.full((len(table),), -1).index_copy_(0, rows, torch.arange(len(rows)))
        self.register_buffer("slots", slots, persistent=False)

    def distinct(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """The rows that `ids` use, each once, [u, e]; and for each id its place among them."""
        rows, inverse = torch.unique(ids, return_inverse=True)
        values = self.weight.index_select(0, rows)
        if self.markers is not None:
            slots = self.slots[rows]
            used = (slots >= 0).nonzero().squeeze(1)
            values = values.index_copy(0, used, self.markers[slots[used]])
        return values, inverse

    def table(self) -> Tensor:
        """The vector of every piece: a copy."""
        table = self.weight.detach().clone()
        if self.markers is not None:
            used = (self.slots >= 0).nonzero().squeeze(1)
            table[used] = self.markers.detach()[self.slots[used]]
        return table


def with_markers(table: Tensor, fresh: Sequence[int], generator: torch.Generator) -> Tensor:
    """A vocabulary's vectors, with new ones for markers that it did not have.

    These are drawn with each dimension's mean and standard deviation over the vocabulary, so that the layers above
    can work with them even where they are never trained.
    """
    table = F.pad(table, (0, 0, 0, max([0, *(row + 1 - len(table) for row in fresh)])))
    if fresh:
        known = table[: min(fresh)]
        drawn = torch.randn((len(fresh), table.shape[1]), generator=generator)
        table[list(fresh)] = known.mean(0) + known.std(0) * drawn
    return table


def add_lora(model: PreTrainedModel, rank: int, first_layer: int, generator: torch.Generator) -> None:
    """Freeze a model and replace matrices W of its layers, from `first_layer` on, by W + 2 BA.

    peft knows for each architecture which matrices these are (queries and values, as published), and takes all
    where it does not. B begins at zero; A is drawn as by peft, but from the given generator.
    """
    try:
        from peft import LoraConfig, inject_adapter_in_model
        from peft.utils import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING as KNOWN
    except ImportError as error:
        problem = "extractor.lora_rank needs the package peft"
        raise UserError(problem, hint="run `pip install 'fedrel[lora]'`") from error

    layers = list(range(first_layer, model.config.num_hidden_layers))
    if not layers:
        problem = "extractor.lora_rank adapts layers, but extractor.frozen_layers freezes them all"
        raise UserError(problem, hint="set one of the two to 0")
    config = LoraConfig(
        r=rank,
        lora_alpha=SCALING * rank,
        target_modules=None if model.config.model_type in KNOWN else "all-linear",
        layers_to_transform=layers if first_layer else None,
    )
    model.requires_grad_(False)
    with torch.random.fork_rng(devices=[]):  # peft draws from the global generator
        inject_adapter_in_model(config, model)
    for name, parameter in model.named_parameters():
        if "lora_A" in name:
            nn.init.kaiming_uniform_(parameter, a=math.sqrt(5), generator=generator)


def without_lora(model: PreTrainedModel) -> PreTrainedModel:
    """A copy of a model with its low-rank updates added to the matrices they belong to."""
    from peft.tuners.lora import LoraLayer

    merged = copy.deepcopy(model)
    for name, module in list(merged.named_modules()):
        if isinstance(module, LoraLayer):
            module.merge()
            parent, _, child = name.rpartition(".")
            setattr(merged.get_submodule(parent), child, module.get_base_layer())
    return merged
