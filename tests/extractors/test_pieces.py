"""Sentences as pieces: blinded, marked, cut to length, and kept as columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrel.data.bags import Bags
from fedrel.data.sentences import Instance, Mention, SentenceCorpus
from fedrel.errors import UserError
from fedrel.extractors.registry import extractor_kind
from fedrel.extractors.transformer import TransformerSection
from fedrel.extractors.transformer import pieces as pieces_module
from fedrel.extractors.transformer.encoder_loading import add_markers, load_tokeniser
from fedrel.extractors.transformer.pieces import PieceInputs, Pieces, Sentence, Tokeniser, tokenise, window

TEXT = "GENE raises the risk of DISEASE."


def section(encoder: str, **choices: object) -> TransformerSection:
    return TransformerSection.model_validate({"encoder": encoder, "max_length": 64, **choices})


class Reader:
    """A tokeniser and what its ids say."""

    def __init__(self, encoder: str, **choices: object) -> None:
        self.tokeniser = Tokeniser(section(encoder, **choices))
        self._names = load_tokeniser(encoder)
        add_markers(self._names)

    def read(
        self, text: str, head: tuple[int, int], tail: tuple[int, int], types: Sequence[str] = ("gene", "")
    ) -> Pieces:
        (found,) = self.tokeniser([Sentence(1, text, head, tail, *types)])
        return found

    def tokens(self, ids: Sequence[int]) -> str:
        return " ".join(self._names.convert_ids_to_tokens(list(ids)))

    def text(self, ids: Sequence[int]) -> str:
        """The words alone, without spaces or markers."""
        return str(self._names.decode(list(ids), skip_special_tokens=True)).replace(" ", "")


@pytest.fixture
def read(tiny_bert: str) -> Callable[..., tuple[str, str, str]]:
    """Tokens of a sentence, of its head and of its tail."""

    def reading(
        text: str, head: str, tail: str, types: Sequence[str] = (), **choices: object
    ) -> tuple[str, ...]:
        reader = Reader(tiny_bert, **choices)
        spans = [(text.index(name), text.index(name) + len(name)) for name in (head, tail)]
        found = reader.read(text, *spans, types or ("gene", "disease"))
        return tuple(
            reader.tokens(ids)
            for ids in (found.ids, found.ids[slice(*found.head)], found.ids[slice(*found.tail)])
        )

    return reading  # type: ignore[return-value]


def test_feded_blinds_and_marks(read: Callable[..., tuple[str, str, str]]) -> None:
    assert read("p53 raises the risk of gout.", "p53", "gout") == (
        "[CLS] <e1> @ GENE $ </e1> raises the risk of <e2> @ DISEASE $ </e2> . [SEP]",
        "@ GENE $",
        "@ DISEASE $",
    )


def test_what_is_blinded_already_stays(read: Callable[..., tuple[str, str, str]]) -> None:
    whole, head, tail = read("risk of @DISEASE$ (@GENE$)", "@GENE$", "@DISEASE$", ("", ""))
    assert whole == "[CLS] risk of <e2> @ DISEASE $ </e2> ( <e1> @ GENE $ </e1> ) [SEP]"
    assert (head, tail) == ("@ GENE $", "@ DISEASE $")


def test_fedcmc_marks_and_does_not_blind(read: Callable[..., tuple[str, str, str]]) -> None:
    assert read("ab raises cs", "ab", "cs", pooling="sum") == (
        "[CLS] <e1> a ##b </e1> raises <e2> c ##s </e2> [SEP]",
        "a ##b",
        "c ##s",
    )


def test_lazy_mil_does_neither_and_entities_end_where_they_end(
    read: Callable[..., tuple[str, str, str]],
) -> None:
    whole, head, tail = read("gene1s lowers x-ray", "gene1", "ray", pooling="max")
    assert (head, tail) == ("gene ##1", "r ##a ##y")  # the last one is not ##1 and ##s
    assert whole == f"[CLS] {head} s lowers x - {tail} [SEP]"


@pytest.mark.parametrize(
    ("head", "tail", "expected"),
    [
        ("the risk of", "risk", "[CLS] <e1> the <e2> risk </e2> of </e1> [SEP]"),
        ("the", "the risk of", "[CLS] <e2> <e1> the </e1> risk of </e2> [SEP]"),
        ("the risk of", "of", "[CLS] <e1> the risk <e2> of </e2> </e1> [SEP]"),
        ("the risk", "risk of", "[CLS] <e1> the <e2> risk </e1> of </e2> [SEP]"),
        ("risk", "risk", "[CLS] the <e1> <e2> risk </e2> </e1> of [SEP]"),
        ("risk of", "the", "[CLS] <e2> the </e2> <e1> risk of </e1> [SEP]"),
    ],
)
def test_entities_may_overlap(
    read: Callable[..., tuple[str, str, str]], head: str, tail: str, expected: str
) -> None:
    whole, head_tokens, tail_tokens = read("the risk of", head, tail, pooling="sum")
    assert whole == expected
    for tokens, name in ((head_tokens, head), (tail_tokens, tail)):
        assert " ".join(token for token in tokens.split() if "<" not in token) == name


def test_overlapping_entities_are_blinded_side_by_side(read: Callable[..., tuple[str, str, str]]) -> None:
    whole, head, tail = read("a risk of gout", "risk of gout", "gout")
    assert whole == "[CLS] a <e1> @ GENE $ </e1> <e2> @ DISEASE $ </e2> [SEP]"
    assert (head, tail) == ("@ GENE $", "@ DISEASE $")
    whole, _, _ = read("gout risk of", "gout", "gout risk")
    assert whole == "[CLS] <e1> @ GENE $ </e1> <e2> @ DISEASE $ </e2> of [SEP]"


def test_text_that_reads_like_a_special_piece_stays_text(read: Callable[..., tuple[str, str, str]]) -> None:
    whole, _, _ = read("[SEP] a <e1> b", "a", "b", pooling="sum")
    assert whole == "[CLS] [ S ##E ##P ] <e1> a </e1> < e ##1 > <e2> b </e2> [SEP]"


def test_an_entity_without_a_type_cannot_be_blinded(tiny_bert: str) -> None:
    with pytest.raises(UserError, match=r"sentence 1, 'x y': its tail 'y' has no type(?s:.*)blinding=false"):
        Reader(tiny_bert).read("x y", (0, 1), (2, 3), ("gene", ""))


@pytest.mark.parametrize("choices", [{"blinding": False}, {"pooling": "max"}])
def test_an_entity_of_which_nothing_is_left_is_refused(tiny_bert: str, choices: dict[str, object]) -> None:
    with pytest.raises(UserError, match="its head '\\\\x07' is missing from the sentence"):
        Reader(tiny_bert, **choices).read("a \x07 b", (2, 3), (4, 5))


def test_a_length_that_the_encoder_does_not_have_is_refused(tiny_bert: str) -> None:
    with pytest.raises(UserError, match=r"max_length is 65, but .* reads 64"):
        Tokeniser(section(tiny_bert, max_length=65))


WORD = st.text("abcdeXYZ019", min_size=1, max_size=6)


@st.composite
def sentences(draw: st.DrawFn) -> Sentence:
    words = draw(st.lists(WORD, min_size=1, max_size=40))
    text = " ".join(words)
    spans = []
    for _ in range(2):
        first = draw(st.integers(0, len(words) - 1))
        last = draw(st.integers(first, min(first + 3, len(words) - 1)))
        start = len(" ".join(words[:first])) + bool(first)
        spans.append((start, start + len(" ".join(words[first : last + 1]))))
    return Sentence(1, text, spans[0], spans[1])


@given(sentences(), st.integers(8, 64), st.sampled_from(["sum", "max"]))
def test_entities_survive_any_cut_and_say_what_they_said(
    tiny_readers: Callable[[int, str], Reader], sentence: Sentence, length: int, pooling: str
) -> None:
    reader = tiny_readers(length, pooling)
    found = reader.read(sentence.text, sentence.head, sentence.tail)
    tokens = reader.tokens(found.ids).split()
    assert len(tokens) <= length and (tokens[0], tokens[-1]) == ("[CLS]", "[SEP]")
    if pooling == "sum":
        assert sorted(token for token in tokens if "<" in token) == ["</e1>", "</e2>", "<e1>", "<e2>"]
        assert tokens[found.head[0] - 1].startswith("<") and tokens[found.tail[1]].startswith("<")
    whole = reader.text(found.ids)
    for span, (start, end) in ((found.head, sentence.head), (found.tail, sentence.tail)):
        said, name = reader.text(found.ids[slice(*span)]), sentence.text[start:end].replace(" ", "")
        assert said
        apart = sentence.head[1] <= sentence.tail[0] or sentence.tail[1] <= sentence.head[0]
        if apart:
            assert name.startswith(said)
        if len(tokens) < length:
            assert said == name
    if len(tokens) < length:
        assert whole == sentence.text.replace(" ", "")


@pytest.fixture(scope="module")
def tiny_readers(tiny_bert: str) -> Callable[[int, str], Reader]:
    known: dict[tuple[int, str], Reader] = {}

    def reader(length: int, pooling: str) -> Reader:
        if (length, pooling) not in known:
            known[length, pooling] = Reader(tiny_bert, max_length=length, pooling=pooling)
        return known[length, pooling]

    return reader


def test_what_is_cut_is_farthest_from_the_entities() -> None:
    near = window(20, [(8, 10), (12, 13)], [], 9)
    assert near.tolist() == [6, 7, 8, 9, 10, 11, 12, 13, 14]  # as much before as after
    assert window(20, [(1, 2), (3, 4)], [], 8).tolist() == [
        0,
        1,
        2,
        3,
        4,
        5,
        6,
        7,
    ]  # or after, where none is before
    assert window(20, [(17, 19), (3, 4)], [], 7).tolist() == [3, 4, 5, 15, 16, 17, 18]  # the middle goes
    assert window(20, [(2, 9), (12, 19)], [], 6).tolist() == [2, 3, 4, 12, 13, 14]  # each one's first pieces
    assert window(20, [(3, 9), (12, 14)], [2, 9, 11, 14], 8).tolist() == [2, 3, 4, 9, 11, 12, 13, 14]
    assert window(9, [(1, 8), (5, 6)], [0, 4, 6, 8], 6).tolist() == [0, 1, 4, 5, 6, 8]


def corpus_of(folder: Path, count: int = 5) -> SentenceCorpus:
    head, tail = Mention("G", "GENE", 0, 4, "gene"), Mention("D", "DISEASE", 24, 31, "disease")
    given_ = [Instance(TEXT + " the" * number, head, tail, "NA") for number in range(count)]
    return SentenceCorpus.build([(0, instance) for instance in given_], folder, ["NA"])


def test_a_corpus_is_tokenised_once(tiny_bert: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDREL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(pieces_module, "AT_ONCE", 2)
    corpus, chosen, seen = corpus_of(tmp_path / "corpus"), section(tiny_bert), []
    inputs = tokenise(corpus, chosen, seen.append)
    assert seen == [2, 4, 5]
    reader = Reader(tiny_bert)
    expected = [reader.read(corpus.text_of(row), (0, 4), (24, 31), ("gene", "disease")) for row in range(5)]
    for row, one in enumerate(expected):
        assert inputs.pieces[inputs.starts[row] : inputs.starts[row + 1]].tolist() == one.ids
        assert tuple(inputs.head[row]) == one.head and tuple(inputs.tail[row]) == one.tail
    assert inputs.lengths(np.array([4, 0])).tolist() == [len(expected[4].ids), len(expected[0].ids)]

    assert tokenise(corpus, chosen, seen.append).folder == inputs.folder
    assert len(seen) == 3, "it was in the cache"
    assert tokenise(corpus, section(tiny_bert, max_length=32)).folder != inputs.folder
    assert tokenise(corpus, section(tiny_bert, blinding=False)).folder != inputs.folder
    assert tokenise(corpus, section(tiny_bert, markers=False)).folder != inputs.folder

    (inputs.folder / "tail.bin").write_bytes(b"")
    again = tokenise(corpus, chosen, seen.append)
    assert seen[3:] == [2, 4, 5], "what was damaged is made again"
    np.testing.assert_array_equal(again.tail, [one.tail for one in expected])


def test_inputs_are_found_again_by_another_process(tiny_bert: str, tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path / "corpus")
    inputs = tokenise(corpus, section(tiny_bert), folder=tmp_path / "pieces")
    assert inputs.folder == tmp_path / "pieces"
    (tmp_path / "run").mkdir()
    inputs.save(tmp_path / "run")
    opened = extractor_kind("transformer").open_inputs(tmp_path / "run", corpus, {})
    assert isinstance(opened, PieceInputs)
    np.testing.assert_array_equal(opened.pieces, inputs.pieces)
    with pytest.raises(UserError, match="not a tokenised corpus"):
        PieceInputs.open(tmp_path)


def test_a_batch_has_the_pieces_of_its_bags(tiny_bert: str, tmp_path: Path) -> None:
    inputs = tokenise(corpus_of(tmp_path / "corpus"), section(tiny_bert), folder=tmp_path / "pieces")
    rows = np.array([3, 0, 4])
    batch = inputs.batch(Bags(rows, np.array([0, 2, 3]), np.array([1, 0]), np.array([7, 8])))
    starts = batch.starts.tolist()
    for place, row in enumerate(rows):
        own = batch.words[starts[place] : starts[place + 1]].tolist()
        assert own == inputs.pieces[inputs.starts[row] : inputs.starts[row + 1]].tolist()
        assert [int(batch.head[place]), int(batch.head_end[place])] == inputs.head[row].tolist()
        assert [int(batch.tail[place]), int(batch.tail_end[place])] == inputs.tail[row].tolist()
    assert batch.rows is rows and batch.bags.tolist() == [0, 2, 3] and batch.labels.tolist() == [1, 0]


def test_an_empty_corpus_has_no_pieces(tiny_bert: str, tmp_path: Path) -> None:
    inputs = tokenise(corpus_of(tmp_path / "corpus", 0), section(tiny_bert), folder=tmp_path / "pieces")
    assert len(inputs.pieces) == 0 and inputs.starts.tolist() == [0]
