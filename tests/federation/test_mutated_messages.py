"""Messages with something wrong in them: each is refused with a reason, or is a message that fits its declaration.

A hundred thousand in `make test-all`, two thousand in `make test`, from a fixed seed.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, RecordDict

from fedrel.federation.flower.codec import decode_answer, encode_answer
from fedrel.federation.messages import Array as Array_
from fedrel.federation.messages import Message, RefusedError, Update
from fedrel.federation.wire import decode, encode
from fedrel.methods.claims import Claims
from tests.federation.test_messages import SHAPES, claims, update

KINDS: dict[type[Message], Mapping[str, Any]] = {Update: update(), Claims: claims()}
NUMBERS = [0, -1, 1, 2**31, -(2**62), 1e30, -1e308, float("nan"), float("inf"), 0.5]


def bytes_changed(block: bytes, draw: random.Random) -> bytes:
    """The block with up to three mistakes: bits flipped, bytes cut out, doubled or changed, an end cut off."""
    for _ in range(draw.randint(1, 3)):
        at, size = draw.randrange(max(len(block), 1)), draw.randint(1, 16)
        kind = draw.randrange(5)
        if kind == 0 and block:
            block = block[:at] + bytes([block[at] ^ 1 << draw.randrange(8)]) + block[at + 1 :]
        elif kind == 1:
            block = block[:at] + block[at + size :]
        elif kind == 2:
            block = block[:at] + block[at : at + size] * 2 + block[at + size :]
        elif kind == 3:
            block = block[:at]
        else:
            block = block[:at] + draw.randbytes(size) + block[at + size :]
    return block


def arrays_changed(arrays: Mapping[str, Any], draw: random.Random) -> dict[str, Any]:
    """The arrays with a mistake: one missing, one too many, another type or shape, or another number in it."""
    changed = {name: np.array(array) for name, array in arrays.items()}
    name = draw.choice(sorted(changed))
    array = changed[name]
    kind = draw.randrange(6)
    if kind == 0:
        del changed[name]
    elif kind == 1:
        changed[draw.choice(["text", "weights/other", f"{name}/index", ""])] = array
    elif kind == 2:
        changed[name] = array.astype(
            draw.choice(["float64", "int64", "int32", "uint8", "float32", "float16"])
        )
    elif kind == 3:
        changed[name] = np.resize(array, draw.choice([(0,), (1,), (3, 1), (2, 2, 2), (40,), ()]))
    elif array.size:
        flat = array.reshape(-1).copy()
        with np.errstate(all="ignore"):
            flat[draw.randrange(flat.size)] = np.array(draw.choice(NUMBERS)).astype(array.dtype)
        changed[name] = flat.reshape(array.shape)
    return changed


def fits(kind: type[Message], message: Message) -> None:
    """What passed is finite and within its declaration's bounds."""
    for array in message.pack().values():
        assert array.dtype.kind != "f" or np.isfinite(array).all()
    again = kind.unpack(message.pack(), SHAPES)
    assert again.pack().keys() == message.pack().keys()


def run(count: int) -> None:
    draw, passed = random.Random(17), 0
    for number in range(count):
        kind, arrays = draw.choice(list(KINDS.items()))
        if number % 2:
            block = bytes_changed(encode(arrays), draw)
        else:
            with np.errstate(all="ignore"):
                block = encode(arrays_changed(arrays, draw))
        record = RecordDict(
            {"answer": ArrayRecord({"body": Array("uint8", (len(block),), "safetensors", block)})}
        )
        answer = decode_answer(record)
        try:
            found = decode(block)
        except RefusedError as refusal:
            assert str(refusal) and answer.arrays is None and answer.failure
            continue
        assert answer.arrays is not None and answer.arrays.keys() == found.keys()
        try:
            fits(kind, kind.unpack(found, SHAPES))
        except RefusedError as refusal:
            assert str(refusal)
        else:
            passed += 1
    assert 0 < passed < count / 2  # some changes are of numbers that may be anything


def test_two_thousand_mutated_messages() -> None:
    run(2_000)


@pytest.mark.slow
def test_a_hundred_thousand_mutated_messages() -> None:
    run(100_000)


def test_numbers_were_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was, a toy without declarations: what is in the message is what is averaged."""
    monkeypatch.setattr(Array_, "check", lambda *given: None)
    arrays = {**update(), "loss": np.array(np.nan), "examples": np.array(-1)}
    believed = Update.unpack(arrays, SHAPES)
    assert np.isnan(believed.loss) and believed.examples == -1


def test_an_answer_of_any_size_was_decoded() -> None:
    """As it was: there is no largest answer."""
    large = {**update(), "padding": np.zeros(1 << 20, np.float32)}
    answer = decode_answer(encode_answer(large))
    assert answer.arrays is not None and answer.arrays["padding"].nbytes == 1 << 22


def test_an_answer_of_too_many_bytes_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    content = encode_answer(update())
    size = len(encode(update()))
    assert decode_answer(content, largest=size).arrays is not None
    monkeypatch.setattr("fedrel.federation.flower.codec.decode", lambda block: pytest.fail("was decoded"))
    answer = decode_answer(content, largest=size - 1)
    assert answer.arrays is None
    assert answer.failure == f"answered with {size:,} bytes, where {size - 1:,} are the most"
