"""A grid without a network: nodes are called in this process, and fail as a test tells them to."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

from flwr.app import ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from fedrel.deployment.site_runner import ResidentHost, ResidentSite
from fedrel.federation.flower.client import respond

Behaviour = Callable[[RecordDict, Callable[[RecordDict], RecordDict]], RecordDict | Error | None]


class CalledGrid:
    """Node 100 + k answers for the k-th folder. What each does with a message may be replaced in `behaviour`."""

    def __init__(self, folders: list[Path]) -> None:
        TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = (
            1  # what Flower's programs would set
        )
        self._sites = [(folder, ResidentSite(folder)) for folder in folders]
        self.behaviour: dict[int, Behaviour] = {}
        self.connected = {100 + number for number in range(len(folders))}
        self.carried: list[RecordDict] = []
        self._replies: dict[str, Message] = {}

    def as_grid(self) -> Grid:
        return cast(Grid, self)

    def get_node_ids(self) -> Iterable[int]:
        return list(self.connected)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        return [self._push(message) for message in messages]

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self._replies.pop(one) for one in message_ids if one in self._replies]

    def _push(self, message: Message) -> str:
        number, node = f"message-{time.monotonic_ns()}", message.metadata.dst_node_id
        self.carried.append(message.content)
        reply = self.behaviour.get(node - 100, _as_it_should)(message.content, self._answers(node - 100))
        if reply is not None:
            if isinstance(reply, RecordDict):
                self.carried.append(reply)
            message.metadata.__dict__["_message_id"] = number
            self._replies[number] = Message(reply, reply_to=message)
        return number

    def _answers(self, number: int) -> Callable[[RecordDict], RecordDict]:
        folder, site = self._sites[number]
        return lambda content: respond(lambda: ResidentHost(folder, site), content)


def _as_it_should(content: RecordDict, answer: Callable[[RecordDict], RecordDict]) -> RecordDict | None:
    return answer(content)


def silent(content: RecordDict, answer: Callable[[RecordDict], RecordDict]) -> RecordDict | None:
    """A site that crashed, hangs or comes too late: to the coordinator, all the same."""
    return None


def gone(content: RecordDict, answer: Callable[[RecordDict], RecordDict]) -> Error:
    """What Flower says of a node that took a request and is no longer connected."""
    return Error(ErrorCode.NODE_UNAVAILABLE, "from Flower")


def rubbish(content: RecordDict, answer: Callable[[RecordDict], RecordDict]) -> RecordDict | None:
    return RecordDict({"answer": ConfigRecord({"body": "the patient was given aspirin"})})


def endless(content: RecordDict, answer: Callable[[RecordDict], RecordDict]) -> RecordDict | None:
    return RecordDict({"refusal": MetricRecord({"why": 3, "number": float("inf")})})


def in_round(round_: int, then: Behaviour, phase: str | None = None) -> Behaviour:
    """Behave so in one round only, or in one question of it."""

    def behave(content: RecordDict, answer: Callable[[RecordDict], RecordDict]) -> RecordDict | Error | None:
        asked: Any = content["question"]
        if asked["round"] == round_ and phase in (None, asked["phase"]):
            return then(content, answer)
        return answer(content)

    return behave
