"""Who is let in: by token, Host, Origin and size; and what no request reaches."""

from __future__ import annotations

import pytest

from fedrel.errors import UserError
from fedrel.studio.live.access import COOKIE, HEADERS, address, is_loopback

pytest.importorskip("starlette", reason="needs pip install 'fedrel[studio]'")

from starlette.testclient import TestClient

from fedrel.studio.live.studio_app import studio_app
from tests.studio.conftest import write_run

TOKEN = "a-token-that-is-long-enough"


@pytest.fixture
def root(tmp_path):
    write_run(tmp_path / "runs" / "first")
    (tmp_path / "secret.txt").write_text("nobody may read this")
    return tmp_path / "runs"


def client(root, host="127.0.0.1", token=None, **options):
    app = studio_app(root, address(host, 8420, token))
    return TestClient(app, base_url="http://127.0.0.1:8420", follow_redirects=False, **options)


def test_any_address_but_this_machine_gets_a_token():
    assert address("127.0.0.1", 1).token is None
    assert len(address("0.0.0.0", 1).token) >= 32
    assert address("::1", 5).url == "http://[::1]:5/"
    assert "token" not in repr(address("0.0.0.0", 1))
    with pytest.raises(UserError, match="too short"):
        address("0.0.0.0", 1, "abc")
    assert [is_loopback(one) for one in ("localhost", "127.0.0.9", "::1", "0.0.0.0", "example.org")] == [
        True, True, True, False, False,
    ]  # fmt: skip


def test_a_token_is_asked_for_and_becomes_a_cookie(root):
    browser = client(root, "0.0.0.0", TOKEN)
    for path in ("/", "/run?id=first", "/static/studio.js", "/events"):
        assert browser.get(path).status_code == 401
    assert browser.get(f"/?token={TOKEN}x").status_code == 401
    assert browser.get("/", headers={"Cookie": f"{COOKIE}-8420=wrong"}).status_code == 401
    signed_in = browser.get(f"/run?id=first&token={TOKEN}")
    assert (signed_in.status_code, signed_in.headers["location"]) == (303, "/run?id=first")
    assert (
        "HttpOnly" in signed_in.headers["set-cookie"] and "SameSite=Strict" in signed_in.headers["set-cookie"]
    )
    assert browser.get("/run?id=first").status_code == 200  # by the cookie


def test_signing_in_leads_to_no_other_host(root):
    browser = client(root, "0.0.0.0", TOKEN)
    for path in ("//evil.example/", "/\\evil.example", "///evil.example"):
        found = browser.get(f"http://127.0.0.1:8420{path}?token={TOKEN}")
        assert not found.headers["location"].startswith(("//", "/\\", "http"))


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8420", "127.0.0.1.evil.example", "", "localhost.evil.example:8420"]
)
def test_another_name_is_refused(root, host):
    """A page whose name was made to point here still carries its own name."""
    assert client(root).get("/", headers={"Host": host}).status_code == 421


@pytest.mark.parametrize(
    "host", ["localhost:8420", "127.0.0.1:8420", "[::1]:8420", "192.168.1.7:8420", "LOCALHOST"]
)
def test_own_names_and_addresses_are_served(root, host):
    assert client(root).get("/", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://127.0.0.1:8420", "http://127.0.0.1:9999"]
)
def test_pages_from_elsewhere_may_not_ask(root, origin):
    browser = client(root)
    assert browser.get("/", headers={"Origin": origin}).status_code == 403
    sent = {"id": "first", "note": "x", "tags": []}
    assert browser.post("/remarks", json=sent, headers={"Origin": origin}).status_code == 403
    assert not (root / "studio.json").exists()


def test_without_an_origin_nothing_is_written(root):
    assert client(root).post("/remarks", json={"id": "first", "tags": []}).status_code == 403


def test_what_is_too_large_is_refused_before_it_is_read(root):
    headers = {"Origin": "http://127.0.0.1:8420"}
    browser = client(root)
    assert browser.post("/remarks", content=b"x" * 2_000_001, headers=headers).status_code == 413
    endless = (b"x" for _ in range(3))  # sent in chunks, without a length
    assert browser.post("/remarks", content=endless, headers=headers).status_code == 413


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS"])
def test_other_methods_are_not_allowed(root, method):
    assert client(root).request(method, "/").status_code == 405


@pytest.mark.parametrize(
    "path",
    [
        "/run?id=../secret.txt",
        "/run?id=first/../../secret.txt",
        "/run?id=/etc/passwd",
        "/run?id=first%00",
        "/run?id=",
        "/static/..%2f..%2fsecret.txt",
        "/static/../../secret.txt",
        "/static/runs.html",
        "/first/result.json",
    ],
)
def test_no_path_leaves_the_folder(root, path):
    found = client(root).get(path)
    assert found.status_code == 404
    assert "nobody may read this" not in found.text and "root:" not in found.text


def test_every_answer_has_the_headers(root):
    browser = client(root)
    for path in ("/", "/run?id=first", "/run?id=none", "/static/style.css", "/nothing"):
        found = browser.get(path)
        for name, value in HEADERS.items():
            assert found.headers[name] == value
    policy = HEADERS["Content-Security-Policy"]
    assert "script-src 'self';" in policy and "unsafe-eval" not in policy
