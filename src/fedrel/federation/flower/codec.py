"""Requests, answers and refusals as Flower's records, and back again."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from fedrel.federation.coordinator import Answer
from fedrel.federation.earned import VOUCH_BYTES
from fedrel.federation.flower.host import Refusal, RefusalCode, Request
from fedrel.federation.messages import Arrays, RefusedError
from fedrel.federation.site_memory import Entry
from fedrel.federation.wire import decode, encode

_RUN = re.compile(r"[0-9a-f]{32}-[0-9a-f]{8}")  # it names a folder at the site
_PHASE = re.compile(r"[a-z][a-z_]*")
_FORMAT, _RAW = "safetensors", "bytes"
_CHAIN, _VOUCH = "chain", "vouch"  # the records of what goes with an answer
CHAIN_BYTES = 32  # of a record's chain value, a SHA-256
_FIELDS = {"run": str, "config": str, "artefacts": str, "site": int, "round": int, "phase": str}


def encode_arrays(arrays: Arrays) -> ArrayRecord:
    """Arrays as a record. The same record may be part of many requests, and Flower then sends it once."""
    block = encode(arrays)
    return ArrayRecord({"body": Array("uint8", (len(block),), _FORMAT, block)})


def encode_request(request: Request, shared: ArrayRecord, own: ArrayRecord) -> RecordDict:
    """A request with its arrays: those for all sites, and the site's own. Its record is called `question`."""
    fields: dict[str, Any] = {name: getattr(request, name) for name in _FIELDS}
    fields |= {"config": json.dumps(request.config), "artefacts": json.dumps(dict(request.artefacts))}
    return RecordDict({"question": ConfigRecord(fields), "shared": shared, "own": own})


def decode_request(content: RecordDict) -> tuple[Request, bytes, bytes]:
    """A request with its encoded arrays, those for all sites and the site's own; `RefusedError` if it is none."""
    try:
        fields: dict[str, Any] = dict(content["question"])
        fits = fields.keys() == _FIELDS.keys() and all(
            type(fields[name]) is kind for name, kind in _FIELDS.items()
        )
        if fits:
            fields |= {name: json.loads(fields[name]) for name in ("config", "artefacts")}
        shared, own = (_body(content[name]) for name in ("shared", "own"))
    except (KeyError, TypeError, ValueError) as error:
        raise RefusedError(f"is not a request: {error}") from error
    if not fits or not all(isinstance(fields[name], dict) for name in ("config", "artefacts")):
        raise RefusedError("is not a request: a field has another form")
    request = Request(**fields)
    if request.round < 0 or not _RUN.fullmatch(request.run) or not _PHASE.fullmatch(request.phase):
        raise RefusedError("is not a request: a field has another form")
    return request, shared, own


def encode_answer(
    arrays: Arrays, journal: Entry | None = None, chain: bytes | None = None, vouch: bytes | None = None
) -> RecordDict:
    """An answer; only a simulation sends the journal with it.

    A real site sends its record's last chain value and, where sites vouch for updates, the tag of its own.
    """
    records: dict[str, Any] = {"answer": encode_arrays(arrays)}
    if journal is not None:
        records["journal"] = ConfigRecord({"entry": json.dumps(asdict(journal))})
    return RecordDict(records | _raw(_CHAIN, chain) | _raw(_VOUCH, vouch))


def encode_refusal(refusal: Refusal, chain: bytes | None = None) -> RecordDict:
    """What a site sends that does not answer: two numbers, and its record's last chain value."""
    numbers = MetricRecord({"why": int(refusal.code), "number": refusal.number})
    return RecordDict({"refusal": numbers} | _raw(_CHAIN, chain))


def decode_answer(content: RecordDict, *, journal: bool = False, largest: int | None = None) -> Answer:
    """What a site sent back. Anything that is not an answer becomes a failure with the reason.

    One of more than `largest` bytes is not decoded.
    """
    try:
        chain, vouch = (_raw_value(content, *one) for one in ((_CHAIN, CHAIN_BYTES), (_VOUCH, VOUCH_BYTES)))
        if "refusal" in content:
            return Answer(None, failure=str(decode_refusal(content)), chain=chain.hex())
        size = sum(len(array.data) for array in content["answer"].values())  # type: ignore[union-attr, misc]
        if largest is not None and size > largest:
            return Answer(
                None,
                failure=f"answered with {size:,} bytes, where {largest:,} are the most",
                chain=chain.hex(),
            )
        arrays = decode(_body(content["answer"]))
        written: Any = content["journal"]["entry"] if journal and "journal" in content else None
        entry = None if written is None else Entry.from_json(json.loads(written))
    except (KeyError, TypeError, ValueError, AttributeError, RefusedError) as error:
        return Answer(None, failure=f"answered something else than it was asked for: {type(error).__name__}")
    return Answer(arrays, journal=entry, chain=chain.hex(), vouch=vouch)


def decode_refusal(content: RecordDict) -> Refusal:
    """The refusal that a site sent; `KeyError`, `TypeError` or `ValueError` if it is none."""
    record: Any = content["refusal"]
    code, number = record["why"], record["number"]
    if type(code) is not int or type(number) is not int:
        raise TypeError("another kind of number")
    return Refusal(RefusalCode(code), number)


def _raw(name: str, value: bytes | None) -> dict[str, Any]:
    """Bytes that go with an answer, as a record of this name; none without them."""
    return {} if value is None else {name: ArrayRecord({"value": Array("uint8", (len(value),), _RAW, value)})}


def _raw_value(content: RecordDict, name: str, size: int) -> bytes:
    """The bytes of this name that came with an answer; empty if none did."""
    if name not in content:
        return b""
    value: Any = content[name]["value"]
    if not isinstance(value, Array) or value.stype != _RAW or len(value.data) != size:
        raise ValueError("another form")
    return bytes(value.data)


def _body(record: Any) -> bytes:
    array = record["body"]
    if not isinstance(array, Array) or array.stype != _FORMAT:
        raise ValueError("another format")
    return bytes(array.data)
