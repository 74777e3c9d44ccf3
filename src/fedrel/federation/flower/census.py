"""The question before the first round: who is there, with how many sentences?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fedrel.federation.messages import Array, Message

CENSUS = "census"  # the question's phase


@dataclass(frozen=True, slots=True)
class Holdings(Message):
    """Up: how many sentences a site holds."""

    sentences: Annotated[int, Array("int64", low=0)]
