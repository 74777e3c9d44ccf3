from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrel.data.load import open_corpus
from fedrel.data.sentences import Instance, Mention, SentenceCorpus
from fedrel.data.store import DEV, TEST, TRAIN
from fedrel.data.text import tokenise
from fedrel.errors import UserError

RELATIONS = ("NA", "born_in", "works_at")


@pytest.fixture
def corpus(
    make_corpus: Callable[..., SentenceCorpus], make_instance: Callable[..., Instance]
) -> SentenceCorpus:
    return make_corpus(
        [
            make_instance("Ada was born in \u0130zmir.", "Ada", "\u0130zmir", "born_in", "press", True),
            make_instance("Then \u0130zmir forgot Ada's work", "Ada", "\u0130zmir", "NA", "", False),
            make_instance("Bo likes Ada", "Bo", "Ada", "works_at", "press"),
            make_instance("Ada was born in \u0130zmir.", "\u0130zmir", "Ada", "NA", "web"),
            make_instance("Ada left \u0130zmir.", "Ada", "\u0130zmir", "born_in", "web"),
        ],
        [TRAIN, DEV, TRAIN, TEST, TRAIN],
        RELATIONS,
    )


def test_what_the_columns_hold(corpus: SentenceCorpus) -> None:
    assert len(corpus) == 5
    words = [corpus.words[word] for word in corpus.tokens[corpus.starts[1] : corpus.starts[2]]]
    assert words == ["then", "i\u0307zmir", "forgot", "ada", "'s", "work"]
    assert corpus.starts.tolist() == [0, 6, 12, 15, 21, 25]
    assert corpus.head.tolist() == [0, 3, 0, 4, 0]
    assert corpus.tail.tolist() == [4, 1, 2, 0, 2]
    assert corpus.head_span.tolist() == [[0, 3], [18, 21], [0, 2], [16, 21], [0, 3]]
    assert corpus.text_of(1)[slice(*corpus.tail_span[1])] == "\u0130zmir"
    assert list(corpus.entities) == ["ADA", "\u0130ZMIR", "BO"]
    assert list(corpus.names) == ["Ada", "\u0130zmir", "Bo"]
    assert corpus.pairs.tolist() == [[0, 1], [2, 0], [1, 0]]
    assert corpus.pair.tolist() == [0, 0, 1, 2, 0]
    assert corpus.relation.tolist() == [1, 0, 2, 0, 1]
    assert corpus.triples.tolist() == [[0, 1], [0, 0], [1, 2], [2, 0]]
    assert corpus.triple.tolist() == [0, 1, 2, 3, 0]
    assert list(corpus.sources) == ["press", "", "web"]
    assert corpus.source.tolist() == [0, 1, 0, 2, 2]
    assert corpus.expresses.tolist() == [1, 0, -1, -1, -1]
    assert tuple(corpus.relations) == RELATIONS
    assert corpus.rows(TRAIN).tolist() == [0, 2, 4]
    assert corpus.rows(TEST).tolist() == [3]
    assert corpus.head_name(3) == "\u0130zmir" and corpus.tail_name(3) == "Ada"


def test_one_sentence_has_one_hash(corpus: SentenceCorpus) -> None:
    digest = hashlib.blake2b("Ada was born in \u0130zmir.".encode(), digest_size=8).digest()
    assert corpus.sentence[0] == corpus.sentence[3] == int.from_bytes(digest, "little", signed=True)
    assert len(set(corpus.sentence.tolist())) == 4


def test_columns_have_the_promised_types(corpus: SentenceCorpus) -> None:
    for name in (
        "tokens",
        "head",
        "tail",
        "head_span",
        "head_type",
        "tail_type",
        "pair",
        "pairs",
        "relation",
        "triple",
        "triples",
        "source",
    ):
        assert getattr(corpus, name).dtype == np.int32
    for name in ("starts", "text_starts", "sentence"):
        assert getattr(corpus, name).dtype == np.int64
    assert corpus.split.dtype == corpus.expresses.dtype == np.int8
    with pytest.raises(ValueError, match="read-only"):
        corpus.tokens[0] = 1


def test_given_tokens_are_kept(make_corpus: Callable[..., SentenceCorpus]) -> None:
    tokens = ((0, 3), (4, 12))
    one = Instance("A-B and/or C", Mention("a", "a", 0, 3), Mention("c", "c", 11, 12), "NA", tokens=tokens)
    corpus = make_corpus([one])
    assert list(corpus.words) == ["a-b", "and/or c"]
    assert corpus.tail.tolist() == [1]


def test_types_of_mentions(make_corpus: Callable[..., SentenceCorpus]) -> None:
    gene, drug, other = (
        Mention("g", "g", 0, 1, "GENE"),
        Mention("d", "d", 2, 3, "DRUG"),
        Mention("o", "o", 4, 5),
    )
    corpus = make_corpus(
        [Instance("g d o", *pair, "NA") for pair in ((gene, drug), (other, gene), (drug, other))]
    )
    assert list(corpus.types) == ["", "GENE", "DRUG"]
    assert corpus.head_type.tolist() == [1, 0, 2] and corpus.tail_type.tolist() == [2, 1, 0]
    assert list(make_corpus([], relations=["NA"]).types) == [""]


def test_a_mention_inside_a_token_starts_at_that_token(make_corpus: Callable[..., SentenceCorpus]) -> None:
    corpus = make_corpus(
        [Instance("a non-BRCA1 x", Mention("b", "b", 6, 11), Mention("x", "x", 12, 13), "NA")]
    )
    assert corpus.head.tolist() == [1] and corpus.tail.tolist() == [2]


def test_an_empty_corpus_opens(make_corpus: Callable[..., SentenceCorpus]) -> None:
    corpus = make_corpus([], relations=["NA"])
    assert len(corpus) == 0 and len(corpus.words) == 0 and corpus.pairs.shape == (0, 2)


def test_the_fingerprint_follows_the_contents(
    corpus: SentenceCorpus, make_corpus: Callable[..., SentenceCorpus], make_instance: Callable[..., Instance]
) -> None:
    one = make_instance("Ada left Bo", "Ada", "Bo")
    same, again = make_corpus([one]), make_corpus([one])
    assert same.fingerprint == again.fingerprint != corpus.fingerprint
    assert make_corpus([one], [DEV]).fingerprint != same.fingerprint
    assert make_corpus([one], relations=["NA", "x"]).fingerprint != same.fingerprint


def test_progress_is_told(tmp_path: Path, make_instance: Callable[..., Instance]) -> None:
    told: list[int] = []
    one = make_instance("Ada left Bo", "Ada", "Bo")
    SentenceCorpus.build(((TRAIN, one) for _ in range(5000)), tmp_path / "corpus", ["NA"], told.append)
    assert told == [4096, 5000]


@pytest.mark.parametrize("place", [(-1, 2), (2, 2), (3, 1), (0, 14), (14, 15), (11, 13)])
def test_a_mention_outside_the_sentence_is_refused(tmp_path: Path, place: tuple[int, int]) -> None:
    text = "Ada left Bo  "  # the last place is the white space at its end
    one = Instance(text, Mention("a", "Ada", 0, 3), Mention("b", "Bo", *place), "NA")
    with pytest.raises(UserError, match="instance 1: no token of 'Bo'"):
        SentenceCorpus.build([(TRAIN, one)], tmp_path / "corpus", ["NA"])
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_relation_is_refused(tmp_path: Path, make_instance: Callable[..., Instance]) -> None:
    with pytest.raises(UserError, match="'eats' is not in the map"):
        SentenceCorpus.build(
            [(TRAIN, make_instance("Ada left Bo", "Ada", "Bo", "eats"))], tmp_path / "corpus", RELATIONS
        )


def test_na_must_come_first_if_at_all(tmp_path: Path) -> None:
    assert not SentenceCorpus.build([], tmp_path / "without", ["born_in"]).has_na
    with pytest.raises(UserError, match="'NA' the first of them"):
        SentenceCorpus.build([], tmp_path / "corpus", ["born_in", "NA"])


def test_a_full_disk_leaves_nothing(
    tmp_path: Path, make_instance: Callable[..., Instance], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_writer: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fedrel.data.store.Writer.flush", full)
    with pytest.raises(UserError, match="No space left on device"):
        SentenceCorpus.build(
            [(TRAIN, make_instance("Ada left Bo", "Ada", "Bo"))], tmp_path / "corpus", ["NA"]
        )
    assert list(tmp_path.iterdir()) == []


def test_a_failing_reader_leaves_nothing(tmp_path: Path, make_instance: Callable[..., Instance]) -> None:
    def failing() -> Iterator[tuple[int, Instance]]:
        yield TRAIN, make_instance("Ada left Bo", "Ada", "Bo")
        raise UserError("broken", file="train.txt", line=2)

    with pytest.raises(UserError, match=r"train\.txt:2: broken"):
        SentenceCorpus.build(failing(), tmp_path / "corpus", ["NA"])
    assert list(tmp_path.iterdir()) == []


def test_damaged_and_foreign_folders_are_refused(corpus: SentenceCorpus, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a corpus"):
        open_corpus(tmp_path)
    for name, content in (("tokens.bin", b"123"), ("corpus.json", b"{"), ("corpus.json", b'{"format": 99}')):
        damaged = tmp_path / f"damaged-{len(content)}"
        shutil.copytree(corpus.folder, damaged)
        (damaged / name).write_bytes(content)
        with pytest.raises(UserError, match="damaged"):
            open_corpus(damaged)


def test_strings_behave_like_a_list(corpus: SentenceCorpus) -> None:
    words = list(corpus.words)
    assert [corpus.words[index] for index in range(-len(words), len(words))] == words + words
    assert corpus.words[1:4] == words[1:4]
    assert "born" in corpus.words
    with pytest.raises(IndexError):
        corpus.words[len(words)]


texts = st.text(alphabet="ab\u0130\u00df\U0001d4b3 .-'\n", min_size=1, max_size=30).filter(tokenise)


@given(st.lists(st.tuples(texts, st.integers(0, 2), st.sampled_from(RELATIONS)), max_size=8))
def test_everything_that_goes_in_comes_out(
    tmp_path_factory: pytest.TempPathFactory, content: list[tuple[str, int, str]]
) -> None:
    instances = []
    for text, split, relation in content:
        spans = tokenise(text)
        head = Mention(text[:1], "h", *spans[0])
        instances.append((split, Instance(text, head, Mention("t", "t", *spans[-1]), relation)))
    corpus = SentenceCorpus.build(instances, tmp_path_factory.mktemp("c") / "corpus", RELATIONS)
    for row, (split, one) in enumerate(instances):
        spans = tokenise(one.text)
        assert corpus.text_of(row) == one.text
        words = [corpus.words[word] for word in corpus.tokens[corpus.starts[row] : corpus.starts[row + 1]]]
        assert words == [one.text[start:end].lower() for start, end in spans]
        assert (corpus.head[row], corpus.tail[row]) == (0, len(spans) - 1)
        assert (corpus.split[row], corpus.relations[corpus.relation[row]]) == (split, one.relation)
        head, tail = corpus.pairs[corpus.pair[row]]
        assert (corpus.entities[head], corpus.entities[tail]) == (one.head.id, one.tail.id)
        assert tuple(corpus.triples[corpus.triple[row]]) == (corpus.pair[row], corpus.relation[row])
