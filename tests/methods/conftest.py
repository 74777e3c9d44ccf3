"""What tests of methods share."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from fedrel.extractors.pcnn.network import PCNN
from fedrel.methods.composition import _composed


@pytest.fixture
def stepwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every method trains step by step: kernels that do all epochs at once round otherwise."""
    monkeypatch.setattr(PCNN, "can_fit", lambda *_: False)


@pytest.fixture
def forgotten() -> Iterator[None]:
    """Classes of methods that a test defines are gone after it: later tests list all methods that there are."""
    yield
    _composed.cache_clear()
    gc.collect()
