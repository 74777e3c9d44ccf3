"""The site's half under Flower: a ClientApp that asks the gate, sits down at a desk, and answers.

Flower sends the text of an exception to the coordinator. So none gets out of here: what goes wrong is written to
the site's own log, and the coordinator hears a number.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedrel.federation import messages
from fedrel.federation.flower import codec as envelope
from fedrel.federation.flower.codec import Question, Reason, Why
from fedrel.federation.flower.host import Place, Request
from fedrel.federation.journal import Entry
from fedrel.federation.messages import CENSUS, Arrays, Holdings, RefusedError
from fedrel.federation.wire import decode

_log = logging.getLogger(__name__)


def client_app(find: Callable[[Context], Place]) -> ClientApp:
    """An app that answers at the place that `find` names."""
    app = ClientApp()

    @app.query()
    def query(message: Message, context: Context) -> Message:
        return Message(respond(lambda: find(context), message.content), reply_to=message)

    return app


def respond(find: Callable[[], Place], content: RecordDict) -> RecordDict:
    """The answer to a question, or the reason why there is none; never an exception."""
    try:
        return _respond(find(), content)
    except Exception:  # the folder, its site.toml or its record is not as it should be
        _log.exception("cannot answer, nor record that")
        return envelope.refusal(Reason(Why.FAILED))


def _respond(place: Place, content: RecordDict) -> RecordDict:
    """The answer or the reason, which the gate has allowed and recorded."""
    request: Request | None = None
    try:
        asked, shared, own = envelope.open_question(content)
        common, mine = decode(shared), decode(own)
        request = _request(place, asked, common, mine)
        reason = place.gate.allow(request)
        if reason is None:
            arrays, journal = _made(place, asked, shared if common else b"", mine)
            reason = place.gate.record(request, arrays)
        if reason is None:
            return envelope.answer(arrays, journal if place.tells else None)
    except Unanswerable as error:
        reason = place.gate.refuse(request, error.reason)
    except RefusedError as refusal:
        reason = place.gate.refuse(request, Reason(Why.UNFIT), str(refusal))
    except Exception as error:
        _log.exception("failed while answering")
        reason = place.gate.refuse(request, Reason(Why.FAILED), f"{type(error).__name__}: {error}")
    _log.warning("the coordinator hears: %s", reason)
    return envelope.refusal(reason)


class Unanswerable(Exception):  # noqa: N818 - a question's fault, not an error
    """A question that is well formed, but not for this site."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(str(reason))
        self.reason = reason


def _request(place: Place, asked: Question, common: Arrays, mine: Arrays) -> Request:
    """What the gate is shown, of a question that this site could answer."""
    from fedrel.config.schema import Config

    if reason := place.stranger(asked.site):
        raise Unanswerable(reason)
    if (asked.phase == CENSUS) != (asked.round == 0):  # rounds and repeats are limited, the census is not
        raise RefusedError(f"asks for {asked.phase} in round {asked.round}")
    brings = dict.fromkeys(name.partition(".")[0] for name in (*common, *mine))
    try:
        config = Config.model_validate_json(asked.config)
    except ValueError as error:
        raise RefusedError("brings a config that cannot be read") from error
    gives = Holdings if asked.phase == CENSUS else _gives(place, asked.phase)
    return Request(
        run=asked.run,
        config=config,
        artefacts=asked.artefacts,
        site=asked.site,
        round=asked.round,
        phase=asked.phase,
        brings=tuple(brings),
        gives=gives.__name__,
    )


def _gives(place: Place, phase: str) -> type[messages.Message]:
    """The kind of message that a phase of the method answers with."""
    kind = getattr(getattr(place.method(), phase, None), "gives", None)
    if kind is None:
        raise RefusedError(f"asks for {phase}, which the method does not have")
    found: type[messages.Message] = kind
    return found


def _made(place: Place, asked: Question, shared: bytes, mine: Arrays) -> tuple[Arrays, Entry | None]:
    """The answer itself. Messages of this round that came with earlier questions are taken in again first."""
    if asked.phase == CENSUS:
        place.welcome(asked.run)
        return Holdings(place.sentences(asked.site)).pack(), None
    inbox = place.inbox(asked.run, asked.site)
    if shared:
        inbox.keep(asked.round, asked.phase, shared)
    desk = place.desk(asked.run)
    desk.open(asked.phase, 0, {})  # a desk that stays may still hold another site's round
    for phase, block in inbox.kept(asked.round):
        desk.open(phase, asked.round, decode(block))
    desk.open(asked.phase, asked.round, {})
    return desk.answer(asked.phase, asked.round, asked.site, mine)
