"""What tests of methods share."""

from __future__ import annotations

import pytest

from fedrel.extractors.pcnn.pcnn import PCNN


@pytest.fixture
def stepwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every method trains step by step: kernels that do all epochs at once round otherwise."""
    monkeypatch.setattr(PCNN, "can_fit", lambda *_: False)
