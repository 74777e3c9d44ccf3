"""Sentences read from a transformer's update: a tiny encoder without dropout, sites of a few sentences.

DAGER's span check on made gradients.
"""

from __future__ import annotations

from pathlib import Path
from string import ascii_letters

import numpy as np
import pytest

from fedrel.config.check import check
from fedrel.config.schema import Config
from fedrel.leaks.leak_cell import LeakCell, attacked_cell
from fedrel.leaks.leak_defences import DEFENCES
from fedrel.leaks.token_leaks import NEAR, Follows, distances, rouge, span, token_f1
from tests.extractors.conftest import write_encoder

SENTENCES = 240

INPUTS = np.random.default_rng(1).normal(size=(300, 40))  # of a vocabulary


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    folder = tmp_path_factory.mktemp("gad")
    write_encoder(folder / "narrow", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    write_encoder(
        folder / "encoder",
        hidden_size=256,
        num_attention_heads=4,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    draw = np.random.default_rng(5)
    for name, count in (("train", SENTENCES), ("test", 30)):
        header = "index\tsentence\tlabel\n" if name == "test" else ""
        rows = []
        for number in range(count):
            words = " ".join(draw.choice(list(ascii_letters), 10))
            text = f"{words} @GENE$ {draw.choice(['raises', 'lowers'])} @DISEASE$"
            rows.append(f"{number}\t{text}\t{number % 2}" if header else f"{text}\t{number % 2}")
        (folder / f"{name}.tsv").write_text(header + "\n".join(rows) + "\n", encoding="utf-8")
    tree = {
        "method": "fedavg",
        "data": {
            "corpus": "files",
            "format": "gad",
            "root": str(folder),
            "train": ["train.tsv"],
            "test": ["test.tsv"],
        },
        "partition": {"sites": 50},
        "extractor": {
            "kind": "transformer",
            "encoder": str(folder / "encoder"),
            "dropout": 0.0,
            "max_length": 64,
        },
        "training": {
            "fraction": 0.1,
            "epochs": 1,
            "batch_size": 32,
            "learning_rate": 2.0,
            "precision": "float32",  # in bfloat16, rounding fills up the span
            "weight_decay": 0.0,
        },
        "evaluation": {"task": "classification"},
        "engine": {"kind": "local"},
    }
    return check(Config, tree, "test")


def attacked(config: Config, defence: str, *settings: str) -> LeakCell:
    begun = LeakCell(method="fedavg", defence=defence, settings={}, config="", rounds=1, seen="")
    config = config.with_settings(list(settings))
    return attacked_cell(config.with_settings(DEFENCES[defence].over(config)), begun, DEFENCES[defence])


def test_a_gradient_of_few_sentences_tells_their_tokens(config):
    found = attacked(config, "none")
    assert found.tokens.f1 > 0.95
    assert 0.5 < found.tokens.rouge_1 <= 1 and 0 < found.tokens.rouge_2 < found.tokens.rouge_1
    assert found.words.precision == found.words.recall == 1.0


def test_tokens_are_joined_by_what_follows_what_in_the_attackers_own_text():
    follows = Follows([np.array(one) for one in ([1, 5, 6, 9], [1, 7, 8, 9], [1, 5, 9])])
    read = [np.array([1]), np.array([7, 5]), np.array([6, 8]), np.array([9])]
    assert sorted(follows.joined(read, 2)) == [[1, 5, 6, 9], [1, 7, 8, 9]]
    assert follows.joined(read[:2], 3)[0][:1] == [1], "one token may stand in several sentences"


@pytest.mark.parametrize("defence", ["frozen", "lora"])
def test_a_first_layer_that_is_not_trained_tells_nothing(config, defence):
    if defence == "lora":
        pytest.importorskip("peft")
    found = attacked(config, defence)
    assert found.tokens is None
    assert "not trained" in found.why_not["tokens"] and "trained" in found.why_not["words"]


def test_a_sum_does_not_say_whose_tokens_they_are(config):
    assert attacked(config, "secure-sums").tokens.f1 < 0.8


def test_dropout_and_adaptive_steps_hide_the_span(config):
    found = attacked(config, "none", 'training.optimiser="adamw"', "training.learning_rate=0.001")
    assert found.tokens is None and "more tokens than its" in found.why_not["tokens"]


def test_many_sentences_span_everything(config):
    narrow = f'extractor.encoder="{Path(config.extractor.encoder).parent / "narrow"}"'
    found = attacked(config, "none", narrow, "partition.sites=4")
    assert found.tokens is None and "more tokens than its" in found.why_not["tokens"]


def test_where_the_data_are_documents_the_error_says_so(tmp_path: Path):
    from fedrel.errors import UserError
    from fedrel.leaks.leak_texts import divided
    from fedrel.runs.prepare import prepare
    from tests.documents import tiny_documents

    folder = write_encoder(tmp_path / "encoder")
    with pytest.raises(UserError, match="measured on sentences"):
        divided(prepare(tiny_documents(tmp_path, str(folder))), 2, 1)


def gradient(tokens, seed=2):
    """Of a layer of 30 outputs for these tokens."""
    return np.random.default_rng(seed).normal(size=(30, len(tokens))) @ INPUTS[tokens]


def test_the_tokens_of_a_batch_are_those_in_the_span():
    tokens = [3, 50, 77, 120, 299]
    basis = span([gradient(tokens), gradient(tokens, 3)], 1.0)
    assert len(basis) == 5
    assert np.flatnonzero(distances(basis, INPUTS) < NEAR).tolist() == tokens


def test_a_batch_of_more_tokens_than_inputs_spans_everything():
    assert span([gradient(np.arange(60)), gradient(np.arange(60), 3)], 1.0) is None


def test_noise_spans_everything():
    noise = np.random.default_rng(4).normal(0, 1e-3, (60, 40))
    assert span([np.concatenate([gradient([3, 5]), gradient([3, 5], 3)]) + noise], 1.0) is None


def test_rounding_does_not():
    """A step of float32 weights is off by their rounding, which goes in all directions."""
    weights = np.random.default_rng(5).normal(size=(30, 40)).astype(np.float32)
    after = (weights + 0.1 * gradient([3, 5])).astype(np.float32)
    basis = span([after.astype(float) - weights], float(np.abs(weights).max()))
    assert np.flatnonzero(distances(basis, INPUTS) < NEAR).tolist() == [3, 5]


def test_scores():
    assert token_f1({1, 2}, {1, 3, 4}) == pytest.approx(2 / 5)
    assert rouge(1, [1, 2, 3], [3, 2, 1]) == 1.0
    assert rouge(2, [1, 2, 3], [3, 2, 1]) == 0.0
