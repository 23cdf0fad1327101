"""Make one short line of what a foreign program wrote, without what may be a secret.

Names of hosts, files and accounts stay, since they are what its reader needs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

LONGEST = 300
SHORTEST_SECRET = 6
_HIDDEN = "[…]"
_PEM = re.compile(r"-----BEGIN .*?(-----END [^-]*-----|\Z)", re.DOTALL)
_NAMED = re.compile(
    r"(?i)((?:password|passwd|secret|token|bearer|basic|api[-_]?key|access[-_]?key|authorization)"
    r"[\w-]*[\"']?\s*(?:[:=]|\s)\s*[\"']?(?:bearer\s+|basic\s+)?)([^\s\"',;]{6,})"
)
_LONG = re.compile(r"[A-Za-z0-9+/=_.~-]{16,}")
_HEX = re.compile(r"[0-9a-fA-F]{32,}")


def one_line(text: bytes, secrets: Iterable[str] = ()) -> str:
    """Return at most LONGEST characters of ``text``; ``secrets`` are hidden wherever they are."""
    line = _PEM.sub(_HIDDEN, text.decode("utf-8", "replace"))
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= SHORTEST_SECRET:
            line = line.replace(secret, _HIDDEN)
    line = _NAMED.sub(_hide_value, line)
    line = _LONG.sub(_hide_random, line)
    line = " ".join("".join(c if c.isprintable() else " " for c in line).split())
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}…"


def _hide_value(found: re.Match[str]) -> str:
    value = found[2]
    # "token has expired" is no secret: a word of plain letters stays.
    return found[0] if value.isalpha() and value.islower() else f"{found[1]}{_HIDDEN}"


def _hide_random(found: re.Match[str]) -> str:
    """Hide what looks like a key: letters of both cases and digits mixed, or long hexadecimal."""
    for part in found[0].split("/"):
        mixed = (
            len(part) >= 16
            and any(map(str.isdigit, part))
            and any(map(str.isupper, part))
            and any(map(str.islower, part))
        )
        if mixed or _HEX.search(part):
            return _HIDDEN
    return _HIDDEN if _is_random(found[0]) else found[0]


def _is_random(text: str) -> bool:
    """Tell base64 with "/" in it from a path: both cases and digits, and no part that is a word."""
    if text.startswith("/") or "/" not in text:
        return False
    return bool(re.search(r"[A-Z]", text) and re.search(r"\d", text) and re.search(r"[a-z]", text))
