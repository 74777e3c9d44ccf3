"""The command: what it says where something is missing, taken or open to others."""

from __future__ import annotations

import socket
import sys

import pytest

from fedrel.cli.show import studio
from fedrel.errors import UserError


def test_without_the_extra_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(UserError, match=r"the studio is not installed\nhint: pip install 'fedrel\[studio\]'"):
        studio(tmp_path)


def test_a_folder_that_is_not_there(tmp_path):
    pytest.importorskip("uvicorn")
    with pytest.raises(UserError, match="no such folder"):
        studio(tmp_path / "none")


def test_a_port_that_is_taken(tmp_path):
    pytest.importorskip("uvicorn")
    said = r"cannot listen at 127\.0\.0\.1(?s:.*)--port 0"
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(UserError, match=said):
        studio(tmp_path, "127.0.0.1", taken.getsockname()[1])


@pytest.mark.parametrize(("host", "token"), [("127.0.0.1", False), ("0.0.0.0", True)])
def test_the_address_is_said_and_answers_before_it_is(tmp_path, capsys, monkeypatch, host, token):
    uvicorn = pytest.importorskip("uvicorn")

    def run(self, sockets):
        socket.create_connection(sockets[0].getsockname()).close()

    monkeypatch.setattr(uvicorn.Server, "run", run)
    studio(tmp_path, host, 0)
    said = capsys.readouterr().out
    assert f" at http://{host}:" in said
    assert ("?token=" in said, "without encryption" in said) == (token, token)
