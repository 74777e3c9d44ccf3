"""The site's half under Flower: a ClientApp that asks the gate, runs the method's `at_site` function, and answers.

Flower would send an exception's text to the coordinator. So no exception gets out of here: what goes wrong is
written to the site's own log, and the coordinator gets a number.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedrel.federation import messages
from fedrel.federation.flower import codec
from fedrel.federation.flower.host import Host, Refusal, RefusalCode, Request
from fedrel.federation.messages import (
    HOLDINGS,
    Arrays,
    CohortError,
    Holdings,
    PeerError,
    RefusedError,
    UnclaimedError,
)
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
            arrays, journal, refusal = _compute(host, request, shared if common else b"", mine)
        if refusal is None:
            journal = journal if host.sends_journal else None
            return codec.encode_answer(arrays, journal, host.gate.chain, host.gate.vouch)
    except NotHereError as error:
        refusal = host.gate.refuse(request, error.refusal)
    except RefusedError as error:
        code = _CODES.get(type(error), RefusalCode.UNFIT)
        refusal = host.gate.refuse(request, Refusal(code, getattr(error, "number", 0)), str(error))
    except Exception as error:
        _log.exception("failed while answering")
        refusal = host.gate.refuse(request, Refusal(RefusalCode.FAILED), f"{type(error).__name__}: {error}")
    _log.warning("told the coordinator: %s", refusal)
    return codec.encode_refusal(refusal, host.gate.chain)


_CODES = {
    UnclaimedError: RefusalCode.WINNERS,
    CohortError: RefusalCode.COHORT,
    PeerError: RefusalCode.PEER,
}


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


def _compute(
    host: Host, request: Request, shared: bytes, own: Arrays
) -> tuple[Arrays, Entry | None, Refusal | None]:
    """The answer, after the gate has recorded it, or the gate's refusal.

    The runner first gets the messages that came with earlier requests of this round.
    """
    gate, nothing = host.gate, Entry()
    if request.phase == HOLDINGS:
        host.begin_run(request.run)
        arrays: Arrays = Holdings(host.sentences(request.site)).pack()
        return arrays, None, gate.record(request, arrays)
    stored = host.stored_messages(request.run, request.site)
    if shared:
        stored.add(request.round, request.phase, shared)
    blocks = [(phase, decode(block)) for phase, block in stored.of_round(request.round)]
    runner = host.runner(request.run)
    if refusal := gate.receive(request, together([*(block for _, block in blocks), own]), runner):
        return {}, nothing, refusal
    if (earlier := gate.earlier_answer(request)) is not None:
        return earlier, nothing, gate.record(request, earlier)
    runner.open(request.phase, 0, {})  # a simulation's runner may still have another site's messages
    for phase, block in blocks:
        runner.open(phase, request.round, block)
    runner.open(request.phase, request.round, {})
    arrays, journal = runner.answer(request.phase, request.round, request.site, own)
    return arrays, journal, gate.record(request, arrays, runner)


def together(blocks: Iterable[Arrays]) -> dict[str, Any]:
    """All arrays of a round, `Kind.field`; a kind of message that came again replaces the one before."""
    whole: dict[str, Any] = {}
    for block in blocks:
        kinds = {name.partition(".")[0] for name in block}
        whole = {name: array for name, array in whole.items() if name.partition(".")[0] not in kinds}
        whole |= block
    return whole
