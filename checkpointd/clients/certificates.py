"""Read of X.509 certificates what errors must name: whose, signed by whom, valid when.

Nothing is verified here, that is OpenSSL's: this reads the plain fields of DER (RFC 5280, section
4.1; X.690), since the ssl module shows nothing of a certificate that it does not trust. They come
from strangers: what they say is cut and made printable.
"""

from __future__ import annotations

import binascii
import ipaddress
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone

from checkpointd.errors import FieldError

LONGEST_NAME = 100
MOST_NAMES = 8
_SEQUENCE, _OID, _OCTETS = 0x30, 0x06, 0x04
_UTC_TIME, _GENERALIZED_TIME = 0x17, 0x18
_VERSION, _EXTENSIONS = 0xA0, 0xA3
_DNS_NAME, _ADDRESS = 0x82, 0x87
_DATE = ((0, 4), (4, 2), (6, 2), (8, 2), (10, 2), (12, 2))
_ATTRIBUTES = {b"\x55\x04\x03": "CN", b"\x55\x04\x0a": "O", b"\x55\x04\x0b": "OU"}
"""RFC 4519: 2.5.4.3, .10 and .11."""
_ALTERNATIVE_NAMES = b"\x55\x1d\x11"
"""RFC 5280, section 4.2.1.6: 2.5.29.17."""
_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """Hold who it is for, who signed it, and its time. Names are for people, cut and printable.

    ``user`` is the subject's common name, as an API server takes it for the user.
    """

    subject: str
    issuer: str
    user: str
    names: tuple[str, ...]
    not_before: datetime
    not_after: datetime

    def __str__(self) -> str:
        valid = f"valid {say_time(self.not_before)} to {say_time(self.not_after)}"
        return f"subject {self.subject or 'none'}, issuer {self.issuer or 'none'}, {valid}"


def say_time(moment: datetime) -> str:
    """Write a time of a certificate for people: UTC, to the minute."""
    return moment.strftime("%Y-%m-%d %H:%MZ")


def parse_first(pem: bytes) -> Certificate:
    """Parse the first certificate of a file in PEM. Raises FieldError."""
    text = pem.decode("latin-1")
    start, stop = text.find(_BEGIN), text.find(_END)
    if start < 0 or stop < start:
        raise FieldError("no certificate in PEM")
    try:
        der = ssl.PEM_cert_to_DER_cert(text[start : stop + len(_END)])
    except (ValueError, binascii.Error) as error:
        raise FieldError("a certificate that is not base64") from error
    return parse_der(der)


def parse_der(der: bytes) -> Certificate:
    """Parse one certificate. Raises FieldError."""
    try:
        return _parse(der)
    except (ValueError, IndexError, OverflowError) as error:
        raise FieldError("not an X.509 certificate") from error


def _parse(der: bytes) -> Certificate:
    signed = _content(_content(der, _SEQUENCE), _SEQUENCE)
    fields = list(_items(signed))
    if fields and fields[0][0] == _VERSION:
        fields = fields[1:]
    # Serial number, signature algorithm, issuer, validity, subject, public key.
    issuer, validity, subject = (value for _, value in fields[2:5])
    times = [_time(tag, value) for tag, value in _items(validity)]
    extensions = next((value for tag, value in fields[5:] if tag == _EXTENSIONS), b"")
    subject_parts = list(_attributes(subject))
    return Certificate(
        subject=_say(subject_parts),
        issuer=_say(list(_attributes(issuer))),
        user=next((value for name, value in subject_parts if name == "CN"), ""),
        names=tuple(_alternative_names(extensions)),
        not_before=times[0],
        not_after=times[1],
    )


def _read(data: bytes, at: int) -> tuple[int, bytes, int]:
    """Return the tag and content of the element at ``at``, and where the next one begins."""
    tag, length, begin = data[at], data[at + 1], at + 2
    if length & 0x80:
        size = length & 0x7F
        if not 1 <= size <= 4:
            raise ValueError("length")
        length = int.from_bytes(data[begin : begin + size], "big")
        begin += size
    end = begin + length
    if end > len(data):
        raise ValueError("cut off")
    return tag, data[begin:end], end


def _items(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(data):
        tag, value, at = _read(data, at)
        yield tag, value


def _content(data: bytes, tag: int) -> bytes:
    """Return the content of the first element, which must have this tag."""
    found, value, _ = _read(data, 0)
    if found != tag:
        raise ValueError("another element")
    return value


def _time(tag: int, value: bytes) -> datetime:
    text = value.decode("ascii")
    if tag == _UTC_TIME:
        # RFC 5280, section 4.1.2.5.1: 50 to 99 are of the last century.
        text = ("19" if text >= "50" else "20") + text
    elif tag != _GENERALIZED_TIME:
        raise ValueError("no time")
    if len(text) != 15 or text[14] != "Z":
        raise ValueError("no time in UTC")
    year, month, day, hour, minute, second = (int(text[at : at + size]) for at, size in _DATE)
    return datetime(year, month, day, hour, minute, second, tzinfo=timezone.utc)


def _attributes(name: bytes) -> Iterator[tuple[str, str]]:
    """Yield the attributes of a distinguished name that people know it by."""
    for _, part in _items(name):
        for _, pair in _items(part):
            (kind_tag, kind), (_, value) = list(_items(pair))[:2]
            if kind_tag == _OID and kind in _ATTRIBUTES:
                yield _ATTRIBUTES[kind], _printable(value.decode("utf-8", "replace"))


def _say(attributes: list[tuple[str, str]]) -> str:
    return ",".join(f"{kind}={value}" for kind, value in reversed(attributes))[:LONGEST_NAME]


def _alternative_names(extensions: bytes) -> Iterator[str]:
    """Yield the DNS names and addresses that a certificate is for, the first few."""
    if not extensions:
        return
    for _, extension in _items(_content(extensions, _SEQUENCE)):
        (_, kind), *_, (tag, value) = list(_items(extension))
        if kind != _ALTERNATIVE_NAMES or tag != _OCTETS:
            continue
        for count, (name_tag, name) in enumerate(_items(_content(value, _SEQUENCE))):
            if count == MOST_NAMES:
                return
            if name_tag == _DNS_NAME:
                yield _printable(name.decode("latin-1"))
            elif name_tag == _ADDRESS:
                yield str(ipaddress.ip_address(name))


def _printable(text: str) -> str:
    cut = text[:LONGEST_NAME]
    return "".join(letter if letter.isprintable() else "?" for letter in cut)
