"""`fedrel federation init`: who gets which key, and whether the certificates work."""

from __future__ import annotations

import datetime
import ipaddress
import json
import stat
from pathlib import Path

import pytest

from fedrel.deployment.folders import CoordinatorFolder, SiteFolder, init_federation
from fedrel.deployment.policy import check_names, read_policy
from fedrel.errors import UserError

pytest.importorskip("cryptography", reason="comes with Flower: pip install 'fedrel[flower]'")

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import verification

NAMES = ["north", "south", "far-west"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("init") / "federation"
    init_federation(folder, NAMES, "hub.example.org", 4433)
    return folder


def private_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and b"PRIVATE" in path.read_bytes())


def test_private_keys_are_for_their_owner_only(made):
    secret = [*private_files(made), *made.rglob("triple.key")]
    assert sorted(path.name for path in secret) == sorted(
        ["ca.key", "server.key", *["runtime.key", "site.key", "triple.key"] * 3]
    )
    assert {stat.S_IMODE(path.stat().st_mode) for path in secret} == {0o600}
    folders = [made / "authority", made / "coordinator", *(made / "sites").iterdir()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in folders} == {0o700}


def test_no_folder_holds_another_ones_key(made):
    assert [path.name for path in private_files(made / "coordinator")] == ["server.key"]
    assert not list((made / "coordinator").rglob("triple.key"))
    bodies = {name: (made / "sites" / name / "site.key").read_bytes() for name in NAMES}
    assert len(set(bodies.values())) == 3
    for name in NAMES:
        content = [path.read_bytes() for path in (made / "sites" / name).rglob("*") if path.is_file()]
        for other in NAMES:
            assert (bodies[other] in content) == (other == name)
        assert (made / "authority" / "ca.key").read_bytes() not in content
    triples = {(made / "sites" / name / "triple.key").read_bytes() for name in NAMES}
    (key,) = triples
    assert len(key) == 32
    for folder in ("coordinator", "authority"):
        for path in (made / folder).rglob("*"):
            assert path.is_dir() or key not in path.read_bytes(), path


def test_a_sites_key_is_ecdsa_on_p384_as_openssh_writes_it(made):
    for name in NAMES:
        text = (made / "sites" / name / "site.key").read_bytes()
        assert text.startswith(b"-----BEGIN OPENSSH PRIVATE KEY-----")
        key = serialization.load_ssh_private_key(text, password=None)
        assert isinstance(key, ec.EllipticCurvePrivateKey) and isinstance(key.curve, ec.SECP384R1)
        known = (made / "coordinator" / "sites" / f"{name}.pub").read_bytes()
        assert known == (made / "sites" / name / "site.pub").read_bytes()
        assert known.split()[0] == b"ecdsa-sha2-nistp384" and known.split()[2] == name.encode()
        public = serialization.load_ssh_public_key(known)
        assert public == key.public_key()


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def verify(server: x509.Certificate, authority: x509.Certificate, host: str) -> None:
    name: x509.DNSName | x509.IPAddress = x509.DNSName(host)
    if host[0].isdigit():
        name = x509.IPAddress(ipaddress.ip_address(host))
    policy = verification.PolicyBuilder().store(verification.Store([authority]))
    policy.build_server_verifier(name).verify(server, [])


@pytest.mark.parametrize("host", ["hub.example.org", "localhost", "127.0.0.1"])
def test_the_servers_certificate_holds_for_its_names(made, host):
    authority = certificate(made / "coordinator" / "ca.crt")
    server = certificate(made / "coordinator" / "server.crt")
    verify(server, authority, host)
    with pytest.raises(verification.VerificationError):
        verify(server, authority, "elsewhere.example.org")
    until = server.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    assert 600 < until.days < 800


def test_a_certificate_of_another_authority_is_rejected(made, tmp_path):
    init_federation(tmp_path / "other", ["x"], "hub.example.org")
    server = certificate(made / "coordinator" / "server.crt")
    with pytest.raises(verification.VerificationError):
        verify(server, certificate(tmp_path / "other" / "coordinator" / "ca.crt"), "hub.example.org")


def test_a_site_can_run_its_own_processes_under_tls_but_not_pose_as_the_coordinator(made):
    authority = certificate(made / "sites" / "south" / "ca.crt")
    own = certificate(made / "sites" / "south" / "runtime.crt")
    verify(own, authority, "127.0.0.1")
    with pytest.raises(verification.VerificationError):
        verify(own, authority, "hub.example.org")


def test_folders_know_their_sites_and_addresses(made):
    table = CoordinatorFolder(made / "coordinator").federation
    assert (table.host, table.port, table.sites) == ("hub.example.org", 4433, NAMES)
    ports = set()
    for number, name in enumerate(NAMES):
        folder = SiteFolder(made / "sites" / name)
        assert (folder.number, folder.name, folder.sites) == (number, name, tuple(NAMES))
        assert json.loads((folder.path / "place.json").read_text())["number"] == number
        policy = read_policy(folder.path)
        check_names(policy, folder.path)
        assert policy.coordinator == "hub.example.org:4433"
        assert policy.allow.methods == () and policy.allow.epochs == 0  # until the site says otherwise
        ports.add(policy.local_port)
    assert len(ports) == 3


@pytest.mark.parametrize(
    ("folder", "command"),
    [("coordinator", "fedrel coordinator start"), ("sites/far-west", "fedrel site start")],
)
def test_every_folder_says_what_to_run(made, folder, command):
    for file in ("README.md", "compose.yaml", f"fedrel-{Path(folder).name}.service"):
        text = (made / folder / file).read_text()
        assert command in text, file
        assert "{{" not in text
    listed = (made / folder / "README.md").read_text()
    for path in (made / folder).iterdir():
        assert path.name in listed or path.name == "README.md", path.name


@pytest.mark.parametrize(
    ("sites", "host", "message"),
    [
        (["a", "a"], "hub", "'a' is named twice"),
        ([], "hub", "no site is named"),
        (["Nord"], "hub", "cannot be called 'Nord'"),
        (["../x"], "hub", "cannot be called"),
        (["a"], "hub:9092", "neither a host's name nor an address"),
        (["a"], "https://hub", "neither a host's name nor an address"),
    ],
)
def test_invalid_names_are_errors(tmp_path, sites, host, message):
    with pytest.raises(UserError, match=message):
        init_federation(tmp_path / "federation", sites, host)
    assert not (tmp_path / "federation").exists()


def test_keys_are_never_overwritten(made):
    before = (made / "coordinator" / "server.key").read_bytes()
    with pytest.raises(UserError, match="not an empty folder"):
        init_federation(made, NAMES, "hub.example.org")
    assert (made / "coordinator" / "server.key").read_bytes() == before
    for where in (made / "coordinator" / "ca.crt", made / "coordinator" / "ca.crt" / "below"):
        with pytest.raises(UserError, match=r"not an empty folder|cannot write"):
            init_federation(where, NAMES, "hub.example.org")
