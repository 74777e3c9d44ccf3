"""Certificates and keys: an authority for the federation, TLS certificates it signs, a key pair for each site."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrel.errors import UserError

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey


LOCAL = ("localhost", "127.0.0.1", "::1")
YEAR = timedelta(days=365)
WARNED_BEFORE = timedelta(days=30)
RENEW = "whoever has the authority's key renews it with `fedrel federation renew`"


@dataclass(frozen=True)
class Authority:
    """The authority that signs the certificates of the federation's servers."""

    certificate: x509.Certificate
    key: EllipticCurvePrivateKey

    def pem(self) -> bytes:
        """The certificate: with it, anyone can check the certificates that the authority signed."""
        return _pem(self.certificate)

    def write(self, folder: Path) -> None:
        """Write certificate and key, to sign certificates of other servers later."""
        write_public(folder / "ca.crt", self.pem())
        write_private(folder / "ca.key", _private_pem(self.key))


def read_authority(folder: Path) -> Authority:
    """The authority that `Authority.write` wrote."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        certificate = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
        key: Any = load_pem_private_key((folder / "ca.key").read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        hint = "name the folder `authority` that `fedrel federation init` wrote"
        raise UserError(f"cannot sign certificates: {error}", file=folder, hint=hint) from error
    return Authority(certificate, key)


def expiry_notes(certificates: Sequence[Path], now: datetime | None = None) -> list[str]:
    """A line for each certificate that ends within thirty days; a `UserError` for one that has ended."""
    from cryptography import x509

    now = now or datetime.now(UTC)
    notes = []
    for path in certificates:
        try:
            end = x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc
        except (OSError, ValueError) as error:
            problem, hint = f"is not a certificate: {error}", "get it again from whoever made the federation"
            raise UserError(problem, file=path, hint=hint) from error
        if end <= now:
            raise UserError(f"ended on {end:%d %B %Y}", file=path, hint=RENEW)
        if end - now < WARNED_BEFORE:
            notes.append(f"{path} ends on {end:%d %B %Y}, in {(end - now).days} days: {RENEW}")
    return notes


def new_authority(name: str, *, years: int = 10) -> Authority:
    """A new authority, with a self-signed certificate."""
    from cryptography import x509
    from cryptography.hazmat.primitives.hashes import SHA384

    key = _new_key()
    subject = _name(name)
    builder = (
        _begin(subject, subject, key, years)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return Authority(builder.sign(key, SHA384()), key)


def write_server_certificate(
    authority: Authority, hosts: Sequence[str], certificate: Path, key_file: Path, *, years: int = 2
) -> None:
    """Write a TLS certificate for a program that listens under these names and addresses, and its key.

    Files that are there are replaced.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives.hashes import SHA384
    from cryptography.x509.oid import ExtendedKeyUsageOID

    key, issuer = _new_key(), authority.certificate
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    signed = (
        _begin(_name(hosts[0]), issuer.subject, key, years)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_alternative(host) for host in hosts]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(identifier, critical=False)
        .sign(authority.key, SHA384())
    )
    for path in (certificate, key_file):
        path.unlink(missing_ok=True)
    write_public(certificate, _pem(signed))
    write_private(key_file, _private_pem(key))


def write_site_key(private: Path, public: Path, comment: str) -> None:
    """Write an ECDSA key pair on P-384 in OpenSSH's format, by which Flower authenticates a site."""
    from cryptography.hazmat.primitives import serialization as form

    key = _new_key()
    secret = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.OpenSSH, form.NoEncryption())
    known = key.public_key().public_bytes(form.Encoding.OpenSSH, form.PublicFormat.OpenSSH)
    write_private(private, secret)
    write_public(public, known + b" " + comment.encode() + b"\n")


def signature(private: Path, message: bytes) -> str:
    """A site's signature of a message, in hexadecimal: ECDSA with SHA-384."""
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.hashes import SHA384
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key

    try:
        key = load_ssh_private_key(private.read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
    except (ValueError, AssertionError) as error:
        hint = "make one with ssh-keygen -t ecdsa -b 384, without a passphrase"
        raise UserError("is not a site's key", file=private, hint=hint) from error
    return key.sign(message, ec.ECDSA(SHA384())).hex()


def is_signed(public: Path, message: bytes, signed: str) -> bool:
    """Whether this is a signature of the message by the site whose public key this is."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.hashes import SHA384
    from cryptography.hazmat.primitives.serialization import load_ssh_public_key

    try:
        key = load_ssh_public_key(public.read_bytes())
        if not isinstance(key, ec.EllipticCurvePublicKey):
            return False
        key.verify(bytes.fromhex(signed), message, ec.ECDSA(SHA384()))
    except (InvalidSignature, ValueError):
        return False
    return True


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, from its first byte on."""
    _write(path, content, 0o600)


def write_public(path: Path, content: bytes) -> None:
    """Write a file that everybody may read."""
    _write(path, content, 0o644)


def check_host(host: str) -> None:
    """Fail if a certificate cannot have this as a machine's name or address."""
    parts = host.split(".")
    plain = all(part and part.isascii() and part.replace("-", "").isalnum() for part in parts)
    if not plain and not _is_address(host):
        problem = f"{host!r} is neither a host's name nor an address"
        raise UserError(problem, hint="name the coordinator's machine as the sites reach it, without a port")


def check_address(address: str) -> None:
    """Fail if this is no address of a network of this machine's."""
    import socket

    try:
        family = socket.AF_INET6 if ipaddress.ip_address(address).version == 6 else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((address, 0))
    except (ValueError, OSError) as error:
        hint = "give an address of this machine, as 10.0.0.5, or 0.0.0.0 for all"
        raise UserError(f"cannot listen on {address!r}: {error}", hint=hint) from error


def _write(path: Path, content: bytes, mode: int) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except OSError as error:
        raise UserError(f"cannot write: {error.strerror}", file=path) from error
    with os.fdopen(handle, "wb") as file:
        os.fchmod(handle, mode)  # whatever the user's umask
        file.write(content)


def _new_key() -> EllipticCurvePrivateKey:
    try:
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError as error:
        problem = "the package `cryptography` is not installed"
        raise UserError(problem, hint="run `pip install 'fedrel[flower]'`") from error
    return ec.generate_private_key(ec.SECP384R1())


def _begin(
    subject: x509.Name, issuer: x509.Name, key: EllipticCurvePrivateKey, years: int
) -> x509.CertificateBuilder:
    from cryptography import x509

    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))  # clocks differ
        .not_valid_after(now + years * YEAR)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common[:64])])


def _alternative(host: str) -> x509.GeneralName:
    from cryptography import x509

    return x509.IPAddress(ipaddress.ip_address(host)) if _is_address(host) else x509.DNSName(host)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _pem(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    pem: bytes = certificate.public_bytes(Encoding.PEM)
    return pem


def _private_pem(key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives import serialization as form

    pem: bytes = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    return pem
