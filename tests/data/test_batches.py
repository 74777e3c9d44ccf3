"""Lines are read quickly and numbered in batches: the columns are those of reading and numbering one by one."""

from __future__ import annotations

import gc
import json
import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrel.data import word_numbers
from fedrel.data.readers.nyt10 import NYT10
from fedrel.data.readers.opennre import OpenNRE
from fedrel.data.relations import RelationMap
from fedrel.data.sentences import Instance, Mention, SentenceCorpus
from fedrel.data.text import tokenise
from fedrel.data.world import World, WorldConfig
from fedrel.errors import UserError
from tests.data.line_by_line import OneByOne, read_line_by_line

RELATIONS = ("NA", "born_in", "works_at")
# Characters that a tokeniser or lower case may trip over: İ is two in lower case, Σ depends on what follows it.
ODD = "abS\u0130\u03a3\u03c3\u00df\U0001d4b3\u00e9s'\u2019.,;:-_@$()5\u00b2 \t\n\u00a0\u2003"


def same_columns(
    rows: Iterable[tuple[int, Instance]], folder: Path, relations: Iterable[str] = RELATIONS
) -> None:
    listed, named = list(rows), list(relations)
    batch = SentenceCorpus.build(listed, folder / "batches", named)
    slow = OneByOne.build(listed, folder / "slow", named)
    for file in sorted(slow.folder.iterdir()):
        assert (batch.folder / file.name).read_bytes() == file.read_bytes(), file.name
    assert batch.fingerprint == slow.fingerprint


@st.composite
def instances(draw: st.DrawFn) -> Instance:
    text = draw(st.text(ODD, min_size=1, max_size=40).filter(tokenise))
    spans = tokenise(text)
    ends = [draw(st.sampled_from(spans)) for _ in range(2)]
    starts = [draw(st.integers(start, end - 1)) for start, end in ends]
    places = [(start, draw(st.integers(start + 1, len(text)))) for start in starts]
    head, tail = (
        Mention(draw(st.sampled_from("xyz")), "n", *place, draw(st.sampled_from(["", "T"])))
        for place in places
    )
    tokens = draw(st.none() | st.just(tuple(spans)))
    about = draw(
        st.tuples(st.sampled_from(RELATIONS), st.sampled_from(["", "web"]), st.none() | st.booleans())
    )
    return Instance(text, head, tail, *about, tokens)


@given(st.lists(st.tuples(st.integers(0, 2), instances()), max_size=12), st.sampled_from([0, 3, 1 << 20]))
def test_columns_of_odd_text(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, Instance]], parts: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(word_numbers, "_PARTS", parts)  # tables that are cleared change nothing
        same_columns(rows, tmp_path_factory.mktemp("odd"))


def test_columns_of_more_than_one_batch(tmp_path: Path) -> None:
    world = World(WorldConfig(sentences=4500, pairs=1500))
    some = random.Random(1)
    rows = [  # most came without tokens, for which the world's own are left out
        (split, one if some.random() < 0.01 else replace(one, tokens=None))
        for split, one in world.instances()
    ]
    same_columns(rows, tmp_path, world.relations)


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_as_before_after_an_error(tmp_path: Path, enabled: bool) -> None:
    paused: list[bool] = []

    def rows() -> Iterable[tuple[int, Instance]]:
        paused.append(not gc.isenabled())
        raise UserError("a line is wrong")
        yield

    (gc.enable if enabled else gc.disable)()
    try:
        with pytest.raises(UserError, match="a line is wrong"):
            SentenceCorpus.build(rows(), tmp_path / "corpus", RELATIONS)
        assert paused == [True] and gc.isenabled() == enabled
    finally:
        gc.enable()


def test_the_greek_sigma_beside_the_turkish_i(tmp_path: Path) -> None:
    texts = ["\u0391\u03a3's \u0391\u03a3. \u03a3", "\u0130 \u0391\u03a3's", "\u0391\u03a3'a\u0130"]
    rows = [(0, Instance(text, Mention("h", "h", 0, 1), Mention("t", "t", 0, 1), "NA")) for text in texts]
    same_columns(rows, tmp_path)


GOOD: dict[str, Any] = {
    "text": "Ada left Bo.",
    "h": {"id": "e1", "name": "Ada", "pos": [0, 3]},
    "t": {"id": "e2", "name": "Bo", "pos": [9, 11]},
    "relation": "born_in",
}
LINES = [
    json.dumps(GOOD),
    json.dumps(GOOD, ensure_ascii=False).replace("Ada left", "\u00c4da \U0001f600eft"),
    json.dumps(
        GOOD | {"text": "\U0001f600 has left \u0130o."}
    ),  # as escapes, a pair of surrogates among them
    json.dumps(GOOD | {"text": 'A "quoted" \\ \u2028 B\n\tx'}) + "  \r",
    json.dumps(GOOD | {"h": GOOD["h"] | {"id": 12, "type": "GENE"}, "source": 7, "expresses": True}),
    json.dumps(GOOD | {"h": {"id": 123456789012345678901234567890, "pos": [0, 3]}, "source": None}),
    json.dumps(GOOD | {"h": {"id": 1.50, "name": "x", "pos": [0, 3]}, "more": [1, {"a": None}]}),
    json.dumps(GOOD | {"h": {"name": "x", "pos": [0, 3]}, "more": float("nan")}),  # json accepts NaN
    '{"text": "twice"} '.replace('"twice"', '"a b", "text": "c d"').replace("}", ", ") + json.dumps(GOOD)[1:],
    json.dumps(
        {key: value for key, value in GOOD.items() if key != "text"} | {"token": ["Ada", "b", "Bo"]}
    ).replace("[9, 11]", "[2, 3]"),
    "",
    " \u00a0 ",
]
BAD = [
    "{",
    "nothing",
    "[1]",
    '"text"',
    "{'text': 1}",
    json.dumps(GOOD)[:-1],
    "  " + json.dumps(GOOD) + " x",
    json.dumps(GOOD).replace("left", "\\ud83d"),
    json.dumps(GOOD).replace("left", "le\tft"),
    "[" * 3000,
    json.dumps(GOOD | {"text": "  "}),
    json.dumps(GOOD | {"text": 3}),
    json.dumps(GOOD | {"h": None}),
    json.dumps(GOOD | {"h": {"pos": [0, 3]}}),
    json.dumps(GOOD | {"t": GOOD["t"] | {"pos": [9]}}),
    json.dumps(GOOD | {"t": GOOD["t"] | {"pos": [9, 11, 12]}}),
    json.dumps(GOOD | {"t": GOOD["t"] | {"pos": [True, 11]}}),
    json.dumps(GOOD | {"t": GOOD["t"] | {"pos": [9.0, 11]}}),
    json.dumps(GOOD | {"t": GOOD["t"] | {"pos": [9, 13]}}),
    json.dumps(GOOD | {"t": GOOD["t"] | {"pos": [-3, 3]}}),
    json.dumps(GOOD | {"t": GOOD["t"] | {"pos": [8, 9]}}),
    json.dumps(GOOD | {"t": GOOD["t"] | {"pos": {"0": 1, "2": 3}}}),
    json.dumps(GOOD | {"t": GOOD["t"] | {"type": 3}}),
    json.dumps(GOOD | {"relation": None}),
    json.dumps(GOOD | {"relation": "eats"}),
    json.dumps(GOOD | {"source": [1]}),
    json.dumps(GOOD | {"source": 1.5}),
    json.dumps(GOOD | {"expresses": "yes"}),
]


def written(folder: Path, lines: Iterable[str]) -> Path:
    path = folder / "data.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + "".join(f"{line}\n" for line in lines).encode())
    return path


def outcome(read: Callable[[], Iterable[Instance]]) -> list[Instance] | tuple[Any, ...]:
    """What is read, or what is wrong with it."""
    try:
        return list(read())
    except UserError as error:
        return error.problem, error.file, error.line, error.hint


def test_good_lines_become_the_same_instances(tmp_path: Path) -> None:
    path = written(tmp_path, [*LINES, *LINES])
    quick = list(OpenNRE().read(path))
    assert quick == list(read_line_by_line(path)) and len(quick) == 2 * (len(LINES) - 2)
    same_columns(((0, one) for one in quick), tmp_path)
    known = RelationMap(RELATIONS)
    assert list(OpenNRE().read(path, relations=known, source="relation")) == list(
        read_line_by_line(path, known, "relation")
    )


@pytest.mark.parametrize("bad", BAD)
def test_bad_lines_are_the_same_error(tmp_path: Path, bad: str) -> None:
    path = written(tmp_path, [LINES[0], "", bad, LINES[0]])
    known = RelationMap(RELATIONS)
    found = outcome(lambda: OpenNRE().read(path, relations=known))
    assert found == outcome(lambda: read_line_by_line(path, known)) and found[1:3] == (path, 3)


def test_what_is_not_utf_8_is_the_same_error(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_bytes(f"{LINES[0]}\n".encode() + json.dumps(GOOD).encode().replace(b"left", b"le\xfft"))
    found = outcome(lambda: OpenNRE().read(path))
    assert found == outcome(lambda: read_line_by_line(path))
    assert found[0] == "byte 0xff is not UTF-8 text" and found[2] == 2


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(ODD, max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["id", "name", "pos"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(
    st.dictionaries(
        st.sampled_from(["text", "token", "h", "t", "relation", "source", "expresses"]), json_values
    )
)
def test_any_change_of_a_line_has_the_same_outcome(
    tmp_path_factory: pytest.TempPathFactory, changes: dict[str, Any]
) -> None:
    path = written(tmp_path_factory.mktemp("any"), [json.dumps(GOOD | changes)])
    assert repr(outcome(lambda: OpenNRE().read(path))) == repr(outcome(lambda: read_line_by_line(path)))


def test_columns_of_real_text(tmp_path: Path, real_data: Path) -> None:
    rows = []
    for number, one in enumerate(NYT10().read(real_data / "nyt10" / "test.txt.xz")):
        rows.append((0, one if number % 1000 == 0 else replace(one, tokens=None)))
        if number == 6000:
            break
    same_columns(rows, tmp_path, RelationMap(one.relation for _, one in rows))
