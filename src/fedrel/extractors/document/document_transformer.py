"""The document extractor: ATLOP (Zhou et al. 2021) with a sigmoid for each relation, as in FedLCC's Section 3.2.

A mention's vector is the last state of the `*` before it, an entity's the log-sum-exp of its mentions. The context
of a pair is the mean of all states, weighted by what both its entities attend to. Entities and context enter a
grouped bilinear function, which gives the probability of each relation. `NA` is no class: a pair without a relation
is a negative example of all.

`entities`, `contexts` and `GroupedBilinear` are the equations of Section 3.2, each for all entities or pairs at
once. A document has L pieces with states H, and E entities. `find` names the relations found, and the tokens
looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from fedrel.data.bags import singles, slices
from fedrel.errors import UserError
from fedrel.extractors.base import linear
from fedrel.extractors.batches import Batch
from fedrel.extractors.document.document_pieces import DocumentBatch, Part, Task, merge, tasks
from fedrel.extractors.findings import Finding, FoundEntity, Token
from fedrel.extractors.heads import Reading
from fedrel.extractors.transformer.encoder import encoder as encoder_of
from fedrel.extractors.transformer.encoder import frugal
from fedrel.extractors.transformer.encoder_loading import load_encoder, load_tokeniser
from fedrel.extractors.transformer.pretrained import FrozenWords, Pretrained, TrainedWords, seed_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

    from fedrel.data.documents import DocumentView
    from fedrel.extractors.document.document_pieces import DocumentInputs

AT_ONCE = 1 << 24  # numbers in memory at once, whatever a document's size
BILINEAR_PAIRS = 128  # pairs whose products of features are computed at once, so that they stay in the cache
_LEAST = 1e-20  # the smallest divisor: two entities may attend to nothing in common
Ints = npt.NDArray[np.int64]
EVIDENCE = 10  # tokens that are named


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


def entities(mentions: Tensor, entity: Tensor, count: int) -> Tensor:
    """Eq. 2: each entity's log-sum-exp over its mentions' states, [count, d]; `entity` [M] says whose each is."""
    index = entity[:, None].expand_as(mentions)
    with torch.no_grad():  # subtracting any number in the exponent changes neither value nor gradient
        largest = mentions.new_full((count, mentions.shape[1]), -torch.inf)
        largest.scatter_reduce_(0, index, mentions, "amax")
    sums = mentions.new_zeros(largest.shape).index_add(0, entity, (mentions - largest[entity]).exp())
    return largest + sums.log()


def shared_attention(attention: Tensor, head: Tensor, tail: Tensor) -> Tensor:
    """Eq. 3 and 4: a pair's attention to each piece, [P, L], from its entities' in every head, [h, E, L].

    For each piece, a small matrix product gives all heads that occur with all tails that occur.
    """
    heads, row = torch.unique(head, return_inverse=True)
    tails, column = torch.unique(tail, return_inverse=True)
    met = torch.bmm(attention[:, heads].permute(2, 1, 0), attention[:, tails].permute(2, 0, 1))
    products = met.flatten(1)[:, row * len(tails) + column]
    return (products / products.sum(0).clamp_min(_LEAST)).T


def contexts(attention: Tensor, states: Tensor, head: Tensor, tail: Tensor) -> Tensor:
    """Eq. 5: the localized context of each pair, H^T a, [P, d]."""

    def some(heads: Tensor, tails: Tensor) -> Tensor:
        return shared_attention(attention, heads, tails) @ states

    parts = list(_runs(head, tail, attention.shape[2]))
    if len(parts) == 1:
        return some(head, tail)
    return torch.cat([frugal(some, head[part], tail[part]) for part in parts])


class GroupedBilinear(torch.autograd.Function):
    """Eq. 8 to 10 without the bias: sum_i z_s^i W_r^i z_o^i for every pair and relation, [P, R].

    `weight` [R, d * size] has the matrices W_r^i, one after the other. Two vectors have `size` times as many
    products of features as features: these are computed for a few pairs at a time, and again for the gradients.
    """

    @staticmethod
    def forward(ctx: Any, subject: Tensor, object_: Tensor, weight: Tensor, size: int) -> Tensor:
        """One matrix product for some pairs at a time."""
        ctx.save_for_backward(subject, object_, weight)
        ctx.size = size
        logits = subject.new_empty((len(subject), len(weight)))
        for part in _slices(len(subject), BILINEAR_PAIRS):
            torch.mm(_products(subject[part], object_[part], size), weight.T, out=logits[part])
        return logits

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        """The gradients, for some pairs at a time."""
        (gradient,), (subject, object_, weight) = gradients, ctx.saved_tensors
        to_subject, to_object = torch.empty_like(subject), torch.empty_like(object_)
        to_weight = torch.zeros_like(weight)
        for part in _slices(len(subject), BILINEAR_PAIRS):
            some, others = subject[part], object_[part]
            to_weight.addmm_(gradient[part].T, _products(some, others, ctx.size))
            to_products = (gradient[part] @ weight).view(-1, ctx.size, ctx.size)
            to_subject[part] = (to_products @ others.reshape(-1, ctx.size, 1)).view(some.shape)
            to_object[part] = (some.reshape(-1, 1, ctx.size) @ to_products).view(some.shape)
        return to_subject, to_object, to_weight, None


def find(
    extractor: DocumentTransformer,
    inputs: DocumentInputs,
    rows: Ints,
    relations: Sequence[str],
    threshold: float,
) -> Iterator[Finding]:
    """The relations that the extractor finds in some documents of a corpus, document by document."""
    for part in slices(singles(rows, np.zeros_like(rows), rows), inputs.at_once):
        with torch.inference_mode():
            batch = inputs.batch(part)
            documents = extractor.documents(batch)
            likely = extractor.logits(*extractor.fuse(extractor.pairs(batch, documents))).sigmoid().numpy()
        bounds = batch.bags.tolist()
        for read in documents:
            view = inputs.corpus.view(int(part.rows[read.number]))
            asked, text = view.pairs[~view.left_out].tolist(), view.text
            own = likely[bounds[read.number] : bounds[read.number + 1]]
            for pair, relation in np.argwhere(own >= threshold).tolist():
                head, tail = asked[pair]
                yield Finding(
                    row=view.row,
                    document=view.id,
                    text=text,
                    head=_entity(view, head),
                    relation=relations[relation + 1],
                    tail=_entity(view, tail),
                    probability=float(own[pair, relation]),
                    evidence=_evidence(inputs, view, read, head, tail),
                )


def _shares(batch: DocumentBatch, document: int) -> Tensor:
    """Each mention's share in each entity of a document, [E, M]: an entity is the mean of its mentions."""
    first, after = batch.entities[document], batch.entities[document + 1]
    entity = batch.entity[batch.mentions[document] : batch.mentions[document + 1]] - first
    mentions = F.one_hot(entity, after - first).T
    return mentions / mentions.sum(1, keepdim=True)


def _products(subject: Tensor, object_: Tensor, size: int) -> Tensor:
    """The products of every feature of a block of one vector with every feature of the other's, [P, d * size]."""
    pairs = len(subject)
    return (subject.view(pairs, -1, size, 1) * object_.view(pairs, -1, 1, size)).view(pairs, -1)


def _runs(head: Tensor, tail: Tensor, length: int) -> Iterator[slice]:
    """Runs of pairs, ordered by head, that need at most `AT_ONCE` numbers for their heads with all tails."""
    tails = max(len(torch.unique(tail)), 1)
    heads = max(AT_ONCE // (length * tails), 1)
    number = torch.unique_consecutive(head, return_inverse=True)[1]  # of each pair's head, counted from 0
    edges = torch.arange(0, int(number[-1]) + 1 + heads, heads, device=number.device)
    bounds = torch.searchsorted(number, edges).tolist()
    return (slice(first, end) for first, end in pairwise(bounds) if first < end)


def _slices(count: int, size: int) -> Iterator[slice]:
    return (slice(first, min(first + size, count)) for first in range(0, count, size))


def _entity(view: DocumentView, number: int) -> FoundEntity:
    mentions = slice(*view.mentions[number : number + 2].tolist())
    return FoundEntity(
        view.entity_ids[number],
        view.mention_names[mentions.start],
        view.entity_types[number],
        tuple((start, end) for start, end in view.mention_chars[mentions].tolist()),
    )


def _evidence(
    inputs: DocumentInputs, view: DocumentView, read: Read, head: int, tail: int
) -> tuple[Token, ...]:
    """The tokens with the largest shares in the pair's context (Eq. 4); markers and frame are no tokens."""
    with torch.inference_mode():
        shares = shared_attention(read.attention, torch.tensor([head]), torch.tensor([tail]))[0].numpy()
    words = inputs.words[inputs.starts[view.row] : inputs.starts[view.row + 1]]
    text, spans = view.text, view.tokens
    by_token = np.bincount(words[words >= 0], shares[words >= 0], len(spans))
    most = np.argsort(-by_token, kind="stable")[:EVIDENCE]
    return tuple(
        Token(text[start:end], start, end, float(by_token[token]))
        for token, (start, end) in zip(most.tolist(), spans[most].tolist(), strict=True)
    )
