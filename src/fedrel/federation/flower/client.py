"""The site's half under Flower: a ClientApp that asks the gate, runs the method's `at_site` function, and answers.

Flower would send an exception's text to the coordinator. So no exception gets out of here: what goes wrong is
written to the site's own log, and the coordinator gets a number.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedrel.federation import messages
from fedrel.federation.flower import codec
from fedrel.federation.flower.host import Host, Refusal, RefusalCode, Request
from fedrel.federation.messages import HOLDINGS, Arrays, Holdings, RefusedError
from fedrel.federation.site_memory import Entry
from fedrel.federation.wire import decode

_log = logging.getLogger(__name__)


def client_app(find_host: Callable[[Context], Host]) -> ClientApp:
    """An app that answers at the host that `find_host` returns."""
    app = ClientApp()

    @app.query()
    def query(message: Message, context: Context) -> Message:
        return Message(respond(lambda: find_host(context), message.content), reply_to=message)

    return app


def respond(find_host: Callable[[], Host], content: RecordDict) -> RecordDict:
    """The answer to a request, or the refusal; never an exception."""
    try:
        return _respond(find_host(), content)
    except Exception:  # the site's folder, its site.toml or its audit record is damaged
        _log.exception("cannot answer, nor record that")
        return codec.encode_refusal(Refusal(RefusalCode.FAILED))


def _respond(host: Host, content: RecordDict) -> RecordDict:
    """The answer or the refusal, after the gate has allowed and recorded it."""
    request: Request | None = None
    try:
        asked, shared, own = codec.decode_request(content)
        common, mine = decode(shared), decode(own)
        if refusal := host.refusal_for(asked.site):
            raise NotHereError(refusal)
        request = replace(asked, gives=_answer_kind(host, asked).__name__)
        refusal = host.gate.allow(request)
        if refusal is None:
            arrays, journal = _compute(host, request, shared if common else b"", mine)
            refusal = host.gate.record(request, arrays)
        if refusal is None:
            return codec.encode_answer(arrays, journal if host.sends_journal else None)
    except NotHereError as error:
        refusal = host.gate.refuse(request, error.refusal)
    except RefusedError as error:
        refusal = host.gate.refuse(request, Refusal(RefusalCode.UNFIT), str(error))
    except Exception as error:
        _log.exception("failed while answering")
        refusal = host.gate.refuse(request, Refusal(RefusalCode.FAILED), f"{type(error).__name__}: {error}")
    _log.warning("told the coordinator: %s", refusal)
    return codec.encode_refusal(refusal)


class NotHereError(Exception):
    """A well-formed request that this host cannot answer, as one for another site."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


def _answer_kind(host: Host, request: Request) -> type[messages.Message]:
    """The kind of message that the request's phase answers with, as the host's own method declares it."""
    if (request.phase == HOLDINGS) != (request.round == 0):  # else round 0 would escape the limits of rounds
        raise RefusedError(f"asks for {request.phase} in round {request.round}")
    if request.phase == HOLDINGS:
        return Holdings
    function = getattr(host.method(), request.phase, None)
    if not getattr(function, "leaves_site", False):
        raise RefusedError(f"asks for {request.phase}, which is not a function that sites run")
    kind: type[messages.Message] = function.gives  # type: ignore[union-attr]
    return kind


def _compute(host: Host, request: Request, shared: bytes, own: Arrays) -> tuple[Arrays, Entry | None]:
    """The answer itself. The runner first gets the messages that came with earlier requests of this round."""
    if request.phase == HOLDINGS:
        host.begin_run(request.run)
        return Holdings(host.sentences(request.site)).pack(), None
    stored = host.stored_messages(request.run, request.site)
    if shared:
        stored.add(request.round, request.phase, shared)
    runner = host.runner(request.run)
    runner.open(request.phase, 0, {})  # a simulation's runner may still have another site's messages
    for phase, block in stored.of_round(request.round):
        runner.open(phase, request.round, decode(block))
    runner.open(request.phase, request.round, {})
    return runner.answer(request.phase, request.round, request.site, own)
