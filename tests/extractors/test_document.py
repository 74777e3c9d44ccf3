"""The document extractor against a plain loop over pairs, with the encoder run by Hugging Face's own code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedrel.data.bags import singles
from fedrel.data.documents import DocumentCorpus
from fedrel.data.load import load_files
from fedrel.errors import UserError
from fedrel.extractors.document import document_transformer as localized
from fedrel.extractors.document.document_pieces import DocumentBatch, DocumentInputs, tokenise
from fedrel.extractors.document.document_transformer import DocumentTransformer, document_transformer
from fedrel.extractors.transformer.packed import packed_layers
from fedrel.extractors.transformer.pretrained import shared_states
from tests.documents import documents, write_documents


@dataclass
class Made:
    corpus: DocumentCorpus
    inputs: DocumentInputs
    model: DocumentTransformer
    encoder: str

    def batch(self, *rows: int) -> DocumentBatch:
        chosen = np.array(rows or range(len(self.corpus)), np.int64)
        return self.inputs.batch(singles(chosen, np.zeros_like(chosen), chosen))


def make(folder: Path, encoder: str, made: list[dict[str, Any]], **choices: Any) -> Made:
    corpus = load_files([(0, write_documents(folder / "made.json", made))], "docred")
    inputs = tokenise(corpus, encoder, choices.pop("window", None), folder=folder / "pieces")
    random = torch.Generator().manual_seed(3)
    model = document_transformer(encoder, len(corpus.relations), random, **{"block_size": 8, **choices})
    return Made(corpus, inputs, model, encoder)


# The slow version.


def marked(made: Made, row: int) -> tuple[list[int], dict[tuple[int, int], int]]:
    """A document's pieces one token at a time, and where each span's opening marker is."""
    from transformers import AutoTokenizer

    tokeniser = AutoTokenizer.from_pretrained(made.encoder)
    view = made.corpus.view(row)
    spans = {(first, after) for first, after in view.mention_tokens.tolist()}
    star = tokeniser.convert_tokens_to_ids("*")
    ids, opened = [tokeniser.cls_token_id], {}
    for token, word in enumerate(view.words):
        for span in spans:
            if span[0] == token:
                opened[span] = len(ids)
                ids.append(star)
        ids += tokeniser.convert_tokens_to_ids(tokeniser.tokenize(word))
        ids += [star for span in spans if span[1] == token + 1]
    return [*ids, tokeniser.sep_token_id], opened


def encoded(made: Made, ids: Sequence[int]) -> tuple[Tensor, Tensor]:
    from transformers import AutoModel

    encoder = AutoModel.from_pretrained(made.encoder, attn_implementation="eager").eval()
    with torch.no_grad():
        found = encoder(torch.tensor([list(ids)]), output_attentions=True)
    return found.last_hidden_state[0], found.attentions[-1][0]


def slow_document(
    made: Made, row: int, states: Tensor, attention: Tensor
) -> tuple[list[Tensor], list[Tensor]]:
    """Eq. 2 to 10 for one document, pair after pair: contexts, and probabilities."""
    view, model, (_, opened) = made.corpus.view(row), made.model, marked(made, row)
    size, width = model.block_size, states.shape[1]
    context_1, context_2 = model.context.weight.split(width)
    contexts, probabilities = [], []
    for head, tail in view.pairs.tolist():
        vectors, attentions = [], []
        for entity in (head, tail):
            first, after = view.mentions[entity], view.mentions[entity + 1]
            places = [opened[tuple(span)] for span in view.mention_tokens[first:after].tolist()]
            vectors.append(sum(states[place].exp() for place in places).log())  # (2)
            attentions.append(sum(attention[:, place] for place in places) / len(places))
        q = sum(attentions[0][h] * attentions[1][h] for h in range(len(attention)))  # (3)
        a = q / q.sum()  # (4)
        c = states.T @ a  # (5)
        z_s = torch.tanh(model.subject.weight @ vectors[0] + context_1 @ c)  # (6)
        z_o = torch.tanh(model.object.weight @ vectors[1] + context_2 @ c)  # (7)
        likely = []
        for r in range(len(made.corpus.relations) - 1):
            total = model.classifier.bias[r]
            for i in range(width // size):
                matrix = model.classifier.weight[r].view(-1, size, size)[i]
                total = total + z_s[i * size : (i + 1) * size] @ matrix @ z_o[i * size : (i + 1) * size]
            likely.append(torch.sigmoid(total))  # (10)
        contexts.append(c)
        probabilities.append(torch.stack(likely))
    return contexts, probabilities


@pytest.mark.parametrize("kind", ["bert", "roberta", "electra", "distilbert"])
@torch.no_grad()
def test_all_pairs_equal_a_loop_over_pairs(tmp_path: Path, encoders: Callable[[str], str], kind: str) -> None:
    made = make(tmp_path, encoders(kind), documents(6, words=(16, 30)))
    batch = made.batch()
    contexts, probabilities = [], []
    for row in range(len(made.corpus)):
        slow = slow_document(made, row, *encoded(made, marked(made, row)[0]))
        contexts += slow[0]
        probabilities += slow[1]
    found = made.model.pairs(batch, made.model.documents(batch))
    assert len(contexts) > 20
    torch.testing.assert_close(found.contexts, torch.stack(contexts), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        made.model.probabilities("none", batch), torch.stack(probabilities), rtol=1e-4, atol=1e-5
    )


@torch.no_grad()
def test_a_document_just_over_the_limit_is_read_in_two_windows(tmp_path: Path, tiny_bert: str) -> None:
    (one,) = documents(1, seed=5, words=(54, 54), entities=(4, 4))
    made = make(tmp_path, tiny_bert, [one])
    ids, _ = marked(made, 0)
    length, limit = len(ids), 64
    assert made.inputs.limit == limit and limit < length < limit + 30
    # As ATLOP has it: the first pieces with [SEP] after them, the last ones with [CLS] before them.
    first, first_attention = encoded(made, [*ids[: limit - 1], ids[-1]])
    last, last_attention = encoded(made, [ids[0], *ids[length - limit + 1 :]])
    cut, began = limit - 1, length - limit + 1
    states, attention = torch.zeros(length, 32), torch.zeros(4, length, length)
    for place in range(length):
        read = []
        if place < cut:
            read.append(first[place])
            attention[:, place, :cut] += first_attention[:, place, :cut]
        if place >= began:
            read.append(last[place - began + 1])
            attention[:, place, began:] += last_attention[:, place - began + 1, 1:]
        states[place] = sum(read) / len(read)
    attention /= attention.sum(2, keepdim=True)
    contexts, probabilities = slow_document(made, 0, states, attention)
    batch = made.batch()
    assert len(batch.starts) == 3
    found = made.model.pairs(batch, made.model.documents(batch)).contexts
    torch.testing.assert_close(found, torch.stack(contexts), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        made.model.probabilities("none", batch), torch.stack(probabilities), rtol=1e-4, atol=1e-5
    )


def gradients(made: Made, batch: DocumentBatch) -> dict[str, Tensor]:
    reading = made.model.read("none", batch, torch.Generator().manual_seed(1))
    made.model.zero_grad()
    made.model.criterion(reading.logits, reading.labels).backward()
    found = {name: weight.grad for name, weight in made.model.named_parameters() if weight.grad is not None}
    words = made.model.words
    if words._pending:
        found["words"] = words._pending[-1][1].grad
        words._pending.clear()
    return found


def test_what_saves_memory_changes_no_gradient(
    tmp_path: Path, tiny_bert: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make(tmp_path, tiny_bert, documents(3, seed=1, words=(90, 120), entities=(4, 6)))
    expected = gradients(made, made.batch())
    monkeypatch.setattr(packed_layers, "KEPT", 0)
    monkeypatch.setattr(localized, "AT_ONCE", 300)
    monkeypatch.setattr(localized, "BILINEAR_PAIRS", 3)
    found = gradients(made, made.batch())
    assert found.keys() == expected.keys() and "words" in found
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-3, atol=1e-6, msg=name)


def test_documents_do_not_depend_on_their_batch(tmp_path: Path, tiny_bert: str) -> None:
    made = make(tmp_path, tiny_bert, documents(5, seed=2, words=(10, 100)))
    together = made.model.probabilities("none", made.batch(3, 0, 4, 2))
    alone = torch.cat([made.model.probabilities("none", made.batch(row)) for row in (3, 0, 4, 2)])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-6)


def test_dropout_comes_from_the_generator(tmp_path: Path, tiny_bert: str) -> None:
    made = make(tmp_path, tiny_bert, documents(2))

    def read(seed: int) -> Tensor:
        return made.model.read("none", made.batch(), torch.Generator().manual_seed(seed)).contexts

    torch.manual_seed(1)
    once = read(5)
    torch.manual_seed(2)
    assert torch.equal(read(5), once) and not torch.equal(read(6), once)


def test_frozen_layers_stay_do_not_travel_and_are_kept(tmp_path: Path, tiny_bert: str) -> None:
    shared_states.cache_clear()
    made = make(tmp_path, tiny_bert, documents(4), frozen_layers=1)
    free = make(tmp_path / "free", tiny_bert, documents(4))
    assert not any(
        "layer.0" in name or "embeddings" in name or "words" in name for name in made.model.shapes()
    )
    assert any("layer.1" in name for name in made.model.shapes())
    first = made.model.probabilities("none", made.batch())
    kept = len(made.model._states or ())
    torch.testing.assert_close(first, free.model.probabilities("none", free.batch()), rtol=1e-4, atol=1e-6)
    assert torch.equal(made.model.probabilities("none", made.batch()), first)
    assert kept == len(made.model._states or ()) == len(made.batch().starts) - 1
    with pytest.raises(UserError, match="last layer's attention"):
        make(tmp_path / "all", tiny_bert, documents(1), frozen_layers=2)


def test_documents_without_pairs_are_not_read_and_cost_nothing(tmp_path: Path, tiny_bert: str) -> None:
    lonely = {"title": "one", "sents": [["A", "gene"]], "labels": []}
    lonely["vertexSet"] = [[{"name": "A", "sent_id": 0, "pos": [0, 1], "type": "T"}]]
    made = make(tmp_path, tiny_bert, [*documents(2), lonely])
    assert made.model.documents(made.batch(2)) == []
    reading = made.model.read("none", made.batch(2), torch.Generator().manual_seed(1))
    loss = made.model.criterion(reading.logits, reading.labels)
    loss.backward()
    assert loss.item() == 0 and reading.logits.shape == (0, 2)
    assert all(torch.isfinite(w.grad).all() for w in made.model.parameters() if w.grad is not None)
    with_it, without = (made.model.probabilities("none", made.batch(*rows)) for rows in ((0, 2, 1), (0, 1)))
    assert torch.equal(with_it, without)


def test_the_loss_by_hand(tmp_path: Path, tiny_bert: str) -> None:
    model = make(tmp_path, tiny_bert, documents(1)).model
    labels = torch.tensor([[1.0, 0.0], [0.0, 0.0]])
    likely = torch.tensor([[0.8, 0.3], [0.5, 0.1]])
    expected = -(np.log(0.8) + np.log(0.7) + np.log(0.5) + np.log(0.9)) / 2
    assert model.criterion(likely.logit(), labels).item() == pytest.approx(expected)


def test_a_block_that_does_not_fit_is_refused(tmp_path: Path, tiny_bert: str) -> None:
    with pytest.raises(UserError, match="no divisor of the encoder's width, 32"):
        make(tmp_path, tiny_bert, documents(1), block_size=5)


def test_a_window_longer_than_the_encoder_reads_is_refused(tmp_path: Path, tiny_bert: str) -> None:
    with pytest.raises(UserError, match=r"reads 64 pieces"):
        make(tmp_path, tiny_bert, documents(1), window=65)
