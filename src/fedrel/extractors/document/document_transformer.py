"""The document extractor: ATLOP (Zhou et al. 2021) with a sigmoid for each relation, as in FedLCC's Section 3.2.

A mention's vector is the last state of the `*` before it, an entity's the log-sum-exp of its mentions. The context
of a pair is the mean of all states, weighted by what both its entities attend to. Entities and context enter a
grouped bilinear function, which gives the probability of each relation. `NA` is no class: a pair without a relation
is a negative example of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple, cast

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from fedrel.errors import UserError
from fedrel.extractors.base import linear
from fedrel.extractors.batches import Batch
from fedrel.extractors.document.context import GroupedBilinear, contexts, entities
from fedrel.extractors.document.windows import DocumentBatch, Part, Task, merge, tasks
from fedrel.extractors.heads import Reading
from fedrel.extractors.transformer.encoder import encoder as encoder_of
from fedrel.extractors.transformer.encoder_loading import load_encoder, load_tokeniser
from fedrel.extractors.transformer.pretrained import FrozenWords, Pretrained, TrainedWords, seed_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast


def document_transformer(
    encoder: str, relations: int, generator: torch.Generator, *, block_size: int = 64, frozen_layers: int = 0
) -> DocumentTransformer:
    """A new extractor over the encoder of that name; what the encoder does not have is drawn."""
    model, tokeniser = load_encoder(encoder), load_tokeniser(encoder)
    return DocumentTransformer(model, tokeniser, relations, generator, block_size, frozen_layers)


@dataclass(frozen=True, slots=True)
class PairReading(Reading):
    """The output for `n` pairs in training; `labels` are [n, R - 1]."""

    contexts: Tensor  # [n, d], Eq. 5


class Read(NamedTuple):
    """The encoder's output for one document of `L` pieces and `E` entities."""

    number: int  # in the batch
    states: Tensor  # [L, d]
    attention: Tensor  # [h, E, L], each entity's, the mean over its mentions


class Pairs(NamedTuple):
    """`P` pairs among the `E` entities of some documents."""

    entities: Tensor  # [E, d], Eq. 2
    contexts: Tensor  # [P, d], Eq. 5
    head: Tensor  # [P], into `entities`
    tail: Tensor  # [P]


class DocumentTransformer(Pretrained):
    """Documents to pairs, and those to relations. All is trained; with `frozen_layers`, only what is above them."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokeniser: PreTrainedTokenizerFast,
        relations: int,
        generator: torch.Generator,
        block_size: int,
        frozen_layers: int,
    ) -> None:
        table = cast(nn.Embedding, model.get_input_embeddings()).weight.detach().clone()
        encoder = encoder_of(model, frozen_layers)
        if frozen_layers == model.config.num_hidden_layers:
            problem = f"extractor.frozen_layers is {frozen_layers}: all that the encoder has"
            hint = f"set it to {frozen_layers - 1} or less: the last layer's attention is read"
            raise UserError(problem, hint=hint)
        frozen = frozen_layers > 0
        words = FrozenWords(table, [], train_markers=False) if frozen else TrainedWords(table)
        super().__init__(tokeniser, words, encoder, keeps=frozen)
        width, self.block_size, self.dropout = encoder.width, block_size, 0.0
        if width % self.block_size:
            problem = f"extractor.block_size is {self.block_size}, no divisor of the encoder's width, {width}"
            raise UserError(problem, hint="set it to 64, or to another divisor")
        self.subject = linear(width, width, bias=False, generator=generator)  # W_s
        self.object = linear(width, width, bias=False, generator=generator)  # W_o
        self.context = linear(width, 2 * width, bias=False, generator=generator)  # W_c1 above W_c2
        self.classifier = linear(width * self.block_size, relations - 1, bias=True, generator=generator)
        self.eval()

    def encode(self, batch: Batch, generator: torch.Generator | None = None) -> Tensor:
        """The vector of each pair, [P, 2 d]: z_s beside z_o of Eq. 6 and 7."""
        return torch.cat(self.fuse(self.pairs(batch, self.documents(batch, generator))), 1)

    def read(self, head: str, batch: Batch, generator: torch.Generator | None) -> PairReading:
        """All pairs of a batch, each with its own labels: documents have no bags, whatever `head` is."""
        pairs = self.pairs(batch, self.documents(batch, generator))
        fused = self.fuse(pairs)
        vectors, once = torch.cat(fused, 1), pairs.contexts.new_ones(len(batch.rows))
        return PairReading(vectors, vectors, self.logits(*fused), batch.labels, once, pairs.contexts)

    def probabilities(self, head: str, batch: Batch) -> Tensor:
        """P(r | e_s, e_o) of every pair, [P, R - 1] (Eq. 10)."""
        return self.logits(*self.fuse(self.pairs(batch, self.documents(batch)))).sigmoid()

    def criterion(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Eq. 11: a pair's cross-entropies over the relations added up, the mean over pairs; of no pairs, 0."""
        total = F.binary_cross_entropy_with_logits(logits, labels, reduction="sum")
        return total / max(len(labels), 1)

    # From windows to relations, step by step.

    def documents(self, batch: Batch, generator: torch.Generator | None = None) -> list[Read]:
        """The encoder's output for each document that has pairs; a generator means training, with dropout."""
        batch = cast(DocumentBatch, batch)
        wanted = dict(tasks(batch))
        parts = self._parts(batch, [task for some in wanted.values() for task in some], generator)
        found = []
        for document, some in wanted.items():
            share = _shares(batch, document).to(self.classifier.weight)
            own = [parts[task.number] for task in some]
            found.append(Read(document, *merge(own, share, batch.lengths[document])))
        return found

    def pairs(self, batch: Batch, documents: Sequence[Read]) -> Pairs:
        """The pairs of documents, all heads and tails in one list of entities."""
        batch = cast(DocumentBatch, batch)
        nothing = self.classifier.weight.new_zeros((0, self.encoder.width))
        vectors, context, ends, before = [nothing], [nothing], [batch.head.new_zeros((2, 0))], 0
        bounds = batch.bags.tolist()
        for number, states, attention in documents:
            first, after = batch.entities[number], batch.entities[number + 1]
            mentions = slice(batch.mentions[number], batch.mentions[number + 1])
            asked = slice(bounds[number], bounds[number + 1])
            pair = torch.stack([batch.head[asked], batch.tail[asked]]) - first
            vectors.append(
                entities(states[batch.place[mentions]], batch.entity[mentions] - first, after - first)
            )
            context.append(contexts(attention, states, *pair))
            ends.append(pair + before)
            before += after - first
        return Pairs(torch.cat(vectors), torch.cat(context), *torch.cat(ends, 1))

    def fuse(self, pairs: Pairs) -> tuple[Tensor, Tensor]:
        """Eq. 6 and 7: z_s and z_o of each pair, [P, d] each."""
        of_subject, of_object = self.context(pairs.contexts).chunk(2, 1)
        subject = self.subject(pairs.entities)[pairs.head] + of_subject
        object_ = self.object(pairs.entities)[pairs.tail] + of_object
        return subject.tanh(), object_.tanh()

    def logits(self, subject: Tensor, object_: Tensor) -> Tensor:
        """Eq. 8 to 10 before the sigmoid, [P, R - 1]."""
        weight, bias = self.classifier.weight, self.classifier.bias
        products: Tensor = GroupedBilinear.apply(subject, object_, weight, self.block_size)  # type: ignore[no-untyped-call]
        return products + bias

    def _parts(
        self, batch: DocumentBatch, wanted: Sequence[Task], generator: torch.Generator | None
    ) -> dict[int, Part]:
        """The encoder's output for windows, by their numbers."""
        seed = seed_of(generator)
        if not wanted:
            return {}
        first = batch.starts.tolist()
        starts = [0, *accumulate(task.length for task in wanted)]
        ids = torch.cat([batch.words[first[task.number] :][: task.length] for task in wanted])
        where = torch.cat([task.where + start for task, start in zip(wanted, starts, strict=False)])
        states, attention = self.encoder.attend(self._enter(ids, starts, seed), starts, where, seed)
        parts = zip(wanted, torch.split(states, [task.length for task in wanted]), attention, strict=True)
        return {task.number: Part(task, own, told) for task, own, told in parts}


def _shares(batch: DocumentBatch, document: int) -> Tensor:
    """Each mention's share in each entity of a document, [E, M]: an entity is the mean of its mentions."""
    first, after = batch.entities[document], batch.entities[document + 1]
    entity = batch.entity[batch.mentions[document] : batch.mentions[document + 1]] - first
    mentions = F.one_hot(entity, after - first).T
    return mentions / mentions.sum(1, keepdim=True)
