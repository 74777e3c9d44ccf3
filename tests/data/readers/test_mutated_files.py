"""Real and made-up files with something wrong in them: a reader says what, or reads on; it never crashes.

Nothing wrong passes unseen either: every row that is read is whole. Its mentions are in its text, at places that
hold words; a document's mentions are tokens of its sentences and its facts are about pairs that it asks about.
"""

from __future__ import annotations

import itertools
import json
import lzma
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fedrel.data.annotations import Document
from fedrel.data.problems import Problems
from fedrel.data.readers import reader
from fedrel.data.relations import NA
from fedrel.data.sentences import Instance
from fedrel.errors import UserError
from tests.data import samples
from tests.data.conftest import DOCRED, PUBTATOR, eog_entity, eog_line

EOG = eog_line(
    "7",
    "Zorbine eases gloom .|It lasts .",
    [
        (
            "1:CID:2",
            eog_entity("D1", "Chemical", [("Zorbine", 0, 1, 0)]),
            eog_entity("D9", "Disease", [("gloom", 2, 3, 0)]),
        )
    ],
)
JSONL = "\n".join(
    json.dumps(
        {
            "text": f"Ada{n} left Bo.",
            "h": {"id": f"a{n}", "name": f"Ada{n}", "pos": [0, 4]},
            "t": {"id": "b", "name": "Bo", "pos": [10, 12]},
            "relation": "left",
        }
    )
    for n in range(3)
)
MADE = {
    **{name: content.encode() for name, content in samples.ONE_FILE.items()},
    "pubtator": PUBTATOR.encode(),
    "docred": DOCRED.encode(),
    "eog": EOG.encode(),
    "jsonl": JSONL.encode(),
    "mirgene": JSONL.encode(),
    "csv": b"text,head,tail,relation\nZorbine eases gloom.,zorbine,gloom,treats\nAda left Bo.,Ada,Bo,left\n",
    "nyt10": b"m1\tm2\tada\tbo\t/x/y\tada left bo . ###END###\nm1\tm3\tada\tcy\tNA\tcy saw ada , ###END###\n",
    "gad": b"@GENE$ and @DISEASE$\t1\nnot @DISEASE$ , @GENE$\t0\n",
    "chemprot-scibert": b'{"text": "<< a >> blocks [[ b ]] .", "label": "INHIBITOR"}\n',
    "brat": samples.BRAT_ANN.encode(),
    "brat-documents": samples.BRAT_ANN.encode(),
}
REAL = {
    "judged-tokens": "judged/nyt_noise_sent.json.xz",
    "judged-lines": "judged/nyt_sentential_byrelation.txt.xz",
    "judged-snippets": "judged/google_education_degree.json.xz",
    "nyt10": "nyt10/train.txt.xz",
    "pubtator": "cdr/CDR_DevelopmentSet.PubTator.txt.gz",
    "docred": "redocred/dev_revised.json.xz",
    "eog": "cdr/eog/dev_filter.data.xz",
    "spert": "joint/scierc/dev_triples.json.xz",
    "ppi": "ppi/AIMed-train.csv.xz",
    "chemprot-scibert": "chemprot/scibert/dev.txt.xz",
    "pgr": "pgr/10_12_2018_corpus/test.tsv",
}


def mutated(content: bytes, draw: random.Random) -> bytes:
    """The content with up to three mistakes: bytes changed, cut out or doubled, lines moved, digits changed."""
    for _ in range(draw.randint(1, 3)):
        if not content:
            break
        at = draw.randrange(len(content))
        size = draw.randint(1, 12)
        lines = content.split(b"\n")
        kind = draw.randrange(8)
        if kind == 0:
            content = content[:at] + bytes([draw.randrange(256)]) + content[at + 1 :]
        elif kind == 1:
            content = content[:at] + content[at + size :]
        elif kind == 2:
            content = content[:at] + content[at : at + size] * 2 + content[at + size :]
        elif kind == 3:
            content = content[:at]
        elif kind == 4:
            draw.shuffle(lines)
            content = b"\n".join(lines)
        elif kind == 5:
            del lines[draw.randrange(len(lines))]
            content = b"\n".join(lines)
        elif kind == 6:
            digits = [place for place, byte in enumerate(content) if 48 <= byte <= 57]
            if digits:
                place = draw.choice(digits)
                content = content[:place] + b"%d" % draw.randrange(10) + content[place + 1 :]
        else:
            marks = [place for place, byte in enumerate(content) if byte in b'\t,;:"{}[]<>|']
            if marks:
                place = draw.choice(marks)
                content = (
                    content[:place] + draw.choice([b"\t", b",", b'"', b"]", b"<", b""]) + content[place + 1 :]
                )
    return content


def place(folder: Path, name: str, content: bytes) -> Path:
    """The file, or the folder with it, that a reader of this format takes."""
    if name.startswith("brat"):
        within = folder / "brat"
        within.mkdir(parents=True, exist_ok=True)
        (within / "note.txt").write_text(samples.BRAT_TXT)
        (within / "note.ann").write_bytes(content)
        return within
    path = folder / ("a.xml" if name == "ddi" else "a.txt")
    path.write_bytes(content)
    return path


def survives(name: str, content: bytes, folder: Path, skip: bool) -> None:
    """Read the content to the end; anything but a `UserError` is a failure, and one must say where it is."""
    problems = Problems(skip=skip)
    path = place(folder, name, content)
    try:
        for row in reader(name, problems).read(path):
            (whole_document if isinstance(row, Document) else whole_sentence)(row)
    except UserError as error:
        assert error.problem and error.file is not None
        return
    assert skip or not problems.reasons
    assert problems.reasons.total() == len(problems.skipped) <= problems.seen


def whole_sentence(row: Instance) -> None:
    assert row.text.strip() and row.relation
    for mention in (row.head, row.tail):
        assert 0 <= mention.start < mention.end <= len(row.text)
        assert row.text[mention.start : mention.end].strip()
    for start, end in row.tokens or ():
        assert 0 <= start <= end <= len(row.text)


def whole_document(row: Document) -> None:
    starts = {start for sentence in row.sentences for start, _ in sentence}
    ends = {end for sentence in row.sentences for _, end in sentence}
    for entity in row.entities:
        assert entity.mentions
        for mention in entity.mentions:
            found = row.text[mention.start : mention.end]  # white space around a name is counted and accepted
            assert mention.start + len(found) - len(found.lstrip()) in starts
            assert mention.end - len(found) + len(found.rstrip()) in ends and found.strip()
    asked = set(map(tuple, row.pairs.tolist()))
    assert all((fact.head, fact.tail) in asked and fact.relation != NA for fact in row.facts)


def run(cases: Iterator[tuple[str, bytes]], folder: Path, count: int) -> None:
    draw = random.Random(15)
    for number, (name, content) in enumerate(itertools.islice(itertools.cycle(cases), count)):
        changed = mutated(content, draw)
        try:
            survives(name, changed, folder, skip=number % 2 == 0)
        except Exception as error:
            raise AssertionError(f"case {number}, {name}: {changed[:2000]!r}") from error


def test_made_up_files_never_crash_a_reader(tmp_path: Path) -> None:
    run(iter(MADE.items()), tmp_path, 2000)


def heads(real_data: Path, size: Callable[[str], int]) -> list[tuple[str, bytes]]:
    """The first records of each real file: enough to have all that the format can say, and quick to read."""
    import gzip

    found = []
    for name, path in REAL.items():
        raw = (real_data / path).read_bytes()
        whole = (
            lzma.decompress(raw)
            if path.endswith(".xz")
            else gzip.decompress(raw)
            if path.endswith(".gz")
            else raw
        )
        if name in ("docred", "spert"):
            found.append((name, json.dumps(json.loads(whole)[: 2 if name == "docred" else 5]).encode()))
        else:
            found.append((name, b"\n".join(whole.split(b"\n")[: size(name)])))
    return found


@pytest.mark.slow
def test_ten_thousand_mutated_real_files_never_crash_a_reader(real_data: Path, tmp_path: Path) -> None:
    run(iter(heads(real_data, lambda name: 3 if name == "eog" else 20)), tmp_path, 10_000)
