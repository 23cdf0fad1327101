"""Make the certificates of the tests: one authority, servers and clients that it signs."""

from __future__ import annotations

import base64
import functools
import ipaddress
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from checkpointd.clock import Clock

NOT_BEFORE = datetime(2020, 1, 1, tzinfo=timezone.utc)
NOT_AFTER = datetime(2120, 1, 1, tzinfo=timezone.utc)
Validity = tuple[datetime, datetime]
ALWAYS = (NOT_BEFORE, NOT_AFTER)
EXPIRED = (NOT_BEFORE, datetime(2021, 1, 1, tzinfo=timezone.utc))
NOT_YET = (datetime(2119, 1, 1, tzinfo=timezone.utc), NOT_AFTER)


@dataclass(frozen=True, slots=True)
class Pair:
    """Hold a certificate and its key, both PEM."""

    certificate: bytes
    key: bytes

    def write(self, directory: Path, name: str) -> Path:
        """Write both into one file, as a kubelet's client-current.pem has them."""
        path = directory / f"{name}.pem"
        path.write_bytes(self.certificate + self.key)
        path.chmod(0o600)
        return path


class Authority:
    """Sign certificates."""

    def __init__(self, name: str = "test-ca") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = self._builder(self._name, self._key.public_key()).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        # Python 3.13 verifies strictly: an authority needs its key usage and key identifier.
        builder = builder.add_extension(usage, critical=True).add_extension(
            x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False
        )
        self.certificate = _pem(builder.sign(self._key, hashes.SHA256()))

    def server(self, *names: str, valid: Validity = ALWAYS) -> Pair:
        """Sign a server's certificate for DNS names and addresses."""
        alternatives = x509.SubjectAlternativeName([_general_name(name) for name in names])
        return self._sign(names[0], (), ExtendedKeyUsageOID.SERVER_AUTH, alternatives, valid)

    def client(self, user: str, groups: Sequence[str] = (), *, valid: Validity = ALWAYS) -> Pair:
        """Sign a client's certificate: common name = user, organisations = groups."""
        return self._sign(user, groups, ExtendedKeyUsageOID.CLIENT_AUTH, None, valid)

    def has_signed(self, der: bytes) -> bool:
        """Tell whether a client's certificate is of this authority, and valid now."""
        certificate = x509.load_der_x509_certificate(der)
        own = x509.load_pem_x509_certificate(self.certificate)
        try:
            certificate.verify_directly_issued_by(own)
        except (InvalidSignature, ValueError, TypeError):
            return False
        now = Clock.wall()
        return certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc

    def _sign(
        self,
        name: str,
        groups: Sequence[str],
        usage: x509.ObjectIdentifier,
        alternatives: x509.SubjectAlternativeName | None,
        valid: Validity,
    ) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject = x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = self._builder(subject, key.public_key(), valid).add_extension(
            x509.ExtendedKeyUsage([usage]), critical=False
        )
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(issuer, critical=False)
        if alternatives is not None:
            builder = builder.add_extension(alternatives, critical=False)
        private = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        return Pair(_pem(builder.sign(self._key, hashes.SHA256())), private)

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, valid: Validity = ALWAYS
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(valid[0])
            .not_valid_after(valid[1])
        )


@dataclass(frozen=True, slots=True)
class Pki:
    """Hold what a small cluster has: an authority, a server on loopback, a node and an admin."""

    ca: Authority
    server: Pair
    node: Pair
    admin: Pair

    def write(self, directory: Path) -> None:
        """Write ca.crt, server.pem, node.pem and admin.pem."""
        (directory / "ca.crt").write_bytes(self.ca.certificate)
        self.server.write(directory, "server")
        self.node.write(directory, "node")
        self.admin.write(directory, "admin")


@functools.cache
def shared(node_name: str = "node-1") -> Pki:
    """Return the certificates of this test session; they are made once."""
    ca = Authority()
    return Pki(
        ca=ca,
        server=ca.server("kubernetes", "localhost", "127.0.0.1", "::1"),
        node=ca.client(f"system:node:{node_name}", ["system:nodes"]),
        admin=ca.client("admin", ["system:masters"]),
    )


def kubeconfig(server: str, ca: bytes, pair: Pair) -> bytes:
    """Return a kubeconfig in JSON with everything embedded."""
    user = {
        "client-certificate-data": _base64(pair.certificate),
        "client-key-data": _base64(pair.key),
    }
    return kubeconfig_of({"server": server, "certificate-authority-data": _base64(ca)}, user)


def kubeconfig_of(cluster: Mapping[str, object], user: Mapping[str, object]) -> bytes:
    """Return a kubeconfig in JSON with one cluster, "c", and one user, "u"."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "default",
        "contexts": [{"name": "default", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    }
    return json.dumps(content, indent=1).encode()


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")
