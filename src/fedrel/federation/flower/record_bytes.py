"""Flower's records as bytes, to pass them between two processes of a site; needs no other part of fedrel."""

from __future__ import annotations

from flwr.app import RecordDict
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.proto.recorddict_pb2 import RecordDict as Encoded


def to_bytes(content: RecordDict) -> bytes:
    """The bytes of a request or an answer."""
    return bytes(recorddict_to_proto(content).SerializeToString())


def from_bytes(block: bytes) -> RecordDict:
    """The records that `to_bytes` encoded."""
    return recorddict_from_proto(Encoded.FromString(block))
