"""Certificates of clusters, of strangers, and bytes that are none."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from checkpointd.clients import certificates
from checkpointd.errors import FieldError
from tests.fakes import pki

DER = x509.load_pem_x509_certificate(pki.shared().server.certificate).public_bytes(
    serialization.Encoding.DER
)


def test_a_servers_certificate_says_for_whom_by_whom_and_how_long() -> None:
    pair = pki.shared().ca.server("kubernetes", "10.0.0.1", "fd00::1", valid=pki.EXPIRED)
    found = certificates.parse_first(pair.certificate)
    assert found.names == ("kubernetes", "10.0.0.1", "fd00::1")
    assert found.not_after == datetime(2021, 1, 1, tzinfo=timezone.utc)
    assert str(found) == (
        "subject CN=kubernetes, issuer CN=test-ca, valid 2020-01-01 00:00Z to 2021-01-01 00:00Z"
    )


def test_a_nodes_certificate_names_its_user() -> None:
    found = certificates.parse_first(pki.shared().node.certificate + pki.shared().node.key)
    assert found.user == "system:node:node-1"
    assert found.subject == "CN=system:node:node-1,O=system:nodes"


def test_a_strangers_name_is_cut_and_steers_no_terminal() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "\x1b[2J\n" + "a" * 59)])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(pki.NOT_BEFORE)
        .not_valid_after(pki.NOT_AFTER)
        .sign(key, hashes.SHA256())
    )
    found = certificates.parse_der(made.public_bytes(serialization.Encoding.DER))
    assert str(found).isprintable()
    assert found.names == ()


@pytest.mark.parametrize(
    "pem",
    [
        b"",
        b"-----END CERTIFICATE----------BEGIN CERTIFICATE-----",
        b"-----BEGIN CERTIFICATE-----\n?\n-----END CERTIFICATE-----",
        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----",
    ],
)
def test_what_is_no_certificate_is_refused(pem: bytes) -> None:
    with pytest.raises(FieldError):
        certificates.parse_first(pem)


@given(st.binary(max_size=64))
def test_no_bytes_raise_anything_else(content: bytes) -> None:
    try:
        certificates.parse_der(content)
    except FieldError:
        pass


@given(st.integers(0, len(DER) - 1), st.integers(0, 255), st.integers(0, len(DER)))
def test_no_damage_raises_anything_else(at: int, byte: int, end: int) -> None:
    for damaged in (DER[:end], DER[:at] + bytes([byte]) + DER[at + 1 :]):
        try:
            assert str(certificates.parse_der(damaged)).isprintable()
        except FieldError:
            pass
