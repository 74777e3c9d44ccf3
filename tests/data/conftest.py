"""Small corpora for the tests of the data layer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest

from fedrel.data.relations import relations_of
from fedrel.data.sentences import Corpus, Instance, Mention
from fedrel.data.writing import build
from tests.conftest import REAL_DATA


def instance(
    text: str,
    head: str,
    tail: str,
    relation: str = "NA",
    source: str = "",
    expresses: bool | None = None,
) -> Instance:
    """A sentence whose entities' ids are their names in capitals."""
    places = [(name, text.index(name), text.index(name) + len(name)) for name in (head, tail)]
    first, second = (Mention(name.upper(), name, start, end) for name, start, end in places)
    return Instance(text, first, second, relation, source, expresses)


@pytest.fixture
def make_instance() -> Callable[..., Instance]:
    return instance


@pytest.fixture
def make_corpus(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Corpus]:
    def make(
        instances: Iterable[Instance], splits: Iterable[int] | None = None, relations: Sequence[str] = ()
    ) -> Corpus:
        instances = list(instances)
        chosen = list(splits) if splits is not None else [0] * len(instances)
        folder = tmp_path_factory.mktemp("corpus") / "columns"
        return build(zip(chosen, instances, strict=True), folder, relations or relations_of(instances))

    return make


@pytest.fixture
def real_data() -> Path:
    """The folder of real corpora, where there is one."""
    if not REAL_DATA:
        pytest.skip("FEDREL_DATA does not name a folder of real corpora")
    return Path(REAL_DATA)
