"""Say in one line why a server is not trusted, or why it does not know us, and what to do.

Nothing here decides: each sentence goes into an error that was raised anyway.
"""

from __future__ import annotations

import base64
import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone

from checkpointd import json_fields
from checkpointd.clients import certificates
from checkpointd.clients.certificates import Certificate
from checkpointd.clients.credentials import Credentials, Secrets
from checkpointd.clock import Clock
from checkpointd.errors import FieldError
from checkpointd.json_fields import Json

NODE_USER = "system:node:"
"""k8s.io/kubernetes/pkg/auth/nodeidentifier: the user of a node."""
_NOT_YET, _EXPIRED = 9, 10
_UNKNOWN_ISSUER = frozenset({2, 18, 19, 20, 21})
_OTHER_NAME = frozenset({62, 64})
"""openssl/x509_vfy.h, X509_V_ERR_*."""
_ALERTS = ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED")


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedies:
    """Hold where to look: ``ca`` names the trusted authorities, ``name`` the key of the name."""

    ca: str
    name: str
    expected: str


def explain_distrust(
    error: ssl.SSLCertVerificationError, shown: Certificate | None, remedies: Remedies
) -> str:
    """Say why a server's certificate is not trusted; ``shown`` is what it shows, if known."""
    known = "" if shown is None else f" ({shown})"
    return f"its certificate is not trusted: {error.verify_message}{known}: " + _remedy(
        error.verify_code, shown, remedies
    )


def _remedy(code: int, shown: Certificate | None, remedies: Remedies) -> str:
    now = certificates.say_time(Clock.wall())
    if code == _NOT_YET:
        return f"check the clocks; this node's says {now}"
    if code == _EXPIRED:
        return f"renew the server's certificate, if this node's clock is right ({now})"
    if code in _UNKNOWN_ISSUER:
        return f"{remedies.ca} must hold its issuer's certificate"
    if code in _OTHER_NAME:
        names = ", ".join(shown.names) if shown is not None else ""
        it_has = f"; it is for {names or 'no name'}" if shown is not None else ""
        return f"it must be for {remedies.expected}, or {remedies.name} must name another{it_has}"
    return f"check {remedies.ca}, {remedies.name} and the clock"


def fetch_certificate(connected: socket.socket, server_name: str) -> Certificate | None:
    """Return what a server shows to anybody, None where that cannot be learned.

    Only for the words of an error: the handshake verifies nothing and tells nothing of us. Closes
    the socket, whose timeout bounds it.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with connected, suppress(OSError, ValueError, FieldError):
        with context.wrap_socket(connected, server_hostname=server_name or None) as secure:
            der = secure.getpeercert(binary_form=True)
        return certificates.parse_der(der) if der else None
    return None


def is_about_us(error: ssl.SSLError) -> bool:
    """Tell whether a server ended a handshake because of our certificate (RFC 8446, 6.2)."""
    reason = error.reason or ""
    return "ALERT" in reason and any(word in reason for word in _ALERTS)


def find_user(secrets: Secrets) -> str:
    """Return the user that credentials stand for, "" where they do not say."""
    certificate = _own_certificate(secrets)
    if certificate is not None:
        return certificate.user
    name = _claims(secrets.token).get("sub")
    return name if isinstance(name, str) and name.isprintable() else ""


def explain_refusal(credentials: Credentials, secrets: Secrets) -> str:
    """Say as whom we came, with what, until when it is valid, and what to do about it."""
    who = f"as {user}" if (user := find_user(secrets)[: certificates.LONGEST_NAME]) else "as nobody"
    if secrets == Secrets(ca=secrets.ca):
        return f"{credentials.user_key}: has no credentials: {_ADD}"
    what, until = _describe(credentials, secrets)
    ended = until is not None and Clock.wall().timestamp() >= until
    validity = "" if until is None else f", {'expired' if ended else 'valid until'} {_say(until)}"
    remedy = "renew it" if ended else "the server does not know it: is it of this cluster?"
    if credentials.plugin is not None and credentials.plugin.failure:
        remedy = f"the plugin gives no other: {credentials.plugin.failure}"
    return f"we came {who} with {what}{validity}: {remedy}"


_ADD = "add client-certificate and client-key, a tokenFile or an exec plugin"


def _describe(credentials: Credentials, secrets: Secrets) -> tuple[str, float | None]:
    """Return what we showed, and until when that is valid (seconds since the epoch)."""
    if credentials.plugin is not None:
        where = f"what {credentials.plugin.spec.key} gave"
    else:
        part = credentials.client_certificate or credentials.token
        where = "" if part is None else f"{part.key}{f' ({part.path})' if part.path else ''}"
    certificate = _own_certificate(secrets)
    if certificate is not None:
        return where, certificate.not_after.timestamp()
    if secrets.login is not None and secrets.login.expires is not None:
        return where, secrets.login.expires
    ends = _claims(secrets.token).get("exp")
    return where, float(ends) if isinstance(ends, int | float) else None


def _say(moment: float) -> str:
    with suppress(OverflowError, OSError, ValueError):
        return certificates.say_time(datetime.fromtimestamp(moment, timezone.utc))
    return "never"


def _own_certificate(secrets: Secrets) -> Certificate | None:
    with suppress(FieldError):
        return certificates.parse_first(secrets.pair) if secrets.pair else None
    return None


def _claims(token: str) -> Json:
    """Return what a JSON web token says of itself (RFC 7519), {} for any other token."""
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    with suppress(ValueError, FieldError):
        padded = parts[1] + "=" * (-len(parts[1]) % 4)
        return json_fields.parse_object(base64.urlsafe_b64decode(padded), "token")
    return {}
