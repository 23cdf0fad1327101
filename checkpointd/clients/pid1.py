"""Ask PID 1 for its SystemState, and of units, over its private socket: no bus daemon, no library.

/run/systemd/private speaks D-Bus point to point: authenticate (EXTERNAL), call one method, read the
answer. It works early at boot and late at shutdown, when no bus daemon does. The protocol is the
D-Bus specification's, "Message Protocol" and "Authentication Protocol".
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from checkpointd.errors import RefusedError, RejectedError, SilentError

STATES = frozenset({
    "initializing", "starting", "running", "degraded", "maintenance", "stopping", "offline",
    "unknown",
})  # fmt: skip
"""src/core/manager.c, manager_state_table, and what systemctl(1) is-system-running adds."""
_MESSAGE_LIMIT = 1 << 20
_FOREIGN_MESSAGES = 256
"""Signals that may come before the answer: PID 1 sends them to each private connection."""
_SERIAL, _HELLO_SERIAL = 1, 2
_NO_AUTO_START = 2
_METHOD_CALL, _METHOD_RETURN, _ERROR = 1, 2, 3
_REPLY_SERIAL = 5


@dataclass(frozen=True, slots=True)
class _Message:
    kind: int
    order: str
    fields: bytes
    body: bytes


class _Connection:
    """Read and write a socket until one deadline for all of it."""

    def __init__(self, stream: socket.socket, seconds: float) -> None:
        self._stream = stream
        self._deadline = time.monotonic() + seconds
        self._buffer = b""

    def connect(self, path: str) -> None:
        self._stream.settimeout(self._left())
        self._stream.connect(path)

    def send(self, content: bytes) -> None:
        self._stream.settimeout(self._left())
        self._stream.sendall(content)

    def take(self, size: int) -> bytes:
        while len(self._buffer) < size:
            self._fill()
        taken, self._buffer = self._buffer[:size], self._buffer[size:]
        return taken

    def take_line(self) -> bytes:
        while b"\r\n" not in self._buffer:
            if len(self._buffer) > 4096:
                raise RejectedError("PID 1: a line of the handshake has no end")
            self._fill()
        line, _, self._buffer = self._buffer.partition(b"\r\n")
        return line

    def _fill(self) -> None:
        self._stream.settimeout(self._left())
        received = self._stream.recv(65536)
        if not received:
            raise RefusedError("PID 1: closed the connection")
        self._buffer += received

    def _left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


Value = str | int | tuple[str, ...]
"""What a property holds: text, a number or a truth value, or a list of texts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Property:
    """Name one property of one object; ``owner`` is who has it, on a bus."""

    owner: str = "org.freedesktop.systemd1"
    path: str = "/org/freedesktop/systemd1"
    interface: str
    name: str


_SYSTEM_STATE = Property(interface="org.freedesktop.systemd1.Manager", name="SystemState")


def of_unit(unit: str, interface: str, name: str) -> Property:
    """Return a property of a unit; ``interface`` is "Unit" or that of its kind, as "Service".

    The object's path is the unit's name, escaped (src/shared/bus-label.c); PID 1 loads the unit.
    """
    escaped = "".join(c if c.isalnum() and c.isascii() else f"_{ord(c):02x}" for c in unit)
    return Property(
        path=f"/org/freedesktop/systemd1/unit/{escaped}",
        interface=f"org.freedesktop.systemd1.{interface}",
        name=name,
    )


def read_system_state(path: Path, seconds: float) -> str:
    """Return PID 1's SystemState, one of STATES, within ``seconds``.

    Raises RefusedError (nobody listens), SilentError (no answer in time), RejectedError (an answer
    that is none).
    """
    state = read_property(path, seconds, _SYSTEM_STATE)
    if not isinstance(state, str):
        raise RejectedError("PID 1: its SystemState is no text")
    if state not in STATES:
        raise RejectedError(f"PID 1: unheard-of state {state[:32]!r}")
    return state


def read_property(path: Path, seconds: float, wanted: Property, *, on_bus: bool = False) -> Value:
    """Return a property's value within ``seconds``. Raises the same errors.

    ``on_bus`` is whether a bus daemon listens at ``path``: to it one says hello first.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stream:
        connection = _Connection(stream, seconds)
        try:
            connection.connect(str(path))
            _authenticate(connection)
            connection.send(_HELLO + _property_call(wanted) if on_bus else _property_call(wanted))
            return _parse_value(_read_answer(connection), wanted.name)
        except TimeoutError as error:
            raise SilentError(f"PID 1: no answer within {seconds:g} s") from error
        except OSError as error:
            raise RefusedError(f"{path}: {error.strerror}") from error
        except (struct.error, UnicodeDecodeError, IndexError) as error:
            raise RejectedError(f"PID 1: not a D-Bus message: {error}") from error


def _authenticate(connection: _Connection) -> None:
    """Authenticate, and wait for the answer before anything else is sent.

    BEGIN goes with AUTH, as sd-bus sends it. A message that came in one read with BEGIN would lie
    in systemd's buffer until more comes: its event loop waits for input that it has already read.
    """
    identity = str(os.geteuid()).encode().hex().encode()
    connection.send(b"\0AUTH EXTERNAL " + identity + b"\r\nBEGIN\r\n")
    answer = connection.take_line()
    if not answer.startswith(b"OK"):
        raise RejectedError(f"PID 1: does not take our word for who we are: {answer[:64]!r}")


def _property_call(wanted: Property) -> bytes:
    """Return the message that reads the property (no body but two strings)."""
    fields = (
        (1, "o", wanted.path),
        (6, "s", wanted.owner),
        (2, "s", "org.freedesktop.DBus.Properties"),
        (3, "s", "Get"),
        (8, "g", "ss"),
    )
    return _call(_SERIAL, fields, _pad(_text(wanted.interface), 4) + _text(wanted.name))


def _call(serial: int, header: Iterable[tuple[int, str, str]], body: bytes = b"") -> bytes:
    """Return a message (little-endian) that starts no service which is not there."""
    fields = b""
    for code, kind, value in header:
        content = _signature(value) if kind == "g" else _text(value)
        fields = _pad(fields, 8) + bytes((code,)) + _signature(kind) + content
    head = struct.pack(
        "<cBBBIII", b"l", _METHOD_CALL, _NO_AUTO_START, 1, len(body), serial, len(fields)
    )
    return _pad(head + fields, 8) + body


def _read_answer(connection: _Connection) -> _Message:
    for _ in range(_FOREIGN_MESSAGES):
        message = _read_message(connection)
        if message.kind in (_METHOD_RETURN, _ERROR) and _reply_serial(message) == _SERIAL:
            return message
    raise RejectedError("PID 1: many messages, none an answer")


def _read_message(connection: _Connection) -> _Message:
    head = connection.take(16)
    order = {b"l": "<", b"B": ">"}.get(head[:1])
    if order is None or head[3] != 1:
        raise RejectedError("PID 1: not a D-Bus message")
    body_size, _, fields_size = struct.unpack(f"{order}III", head[4:16])
    if body_size + fields_size > _MESSAGE_LIMIT:
        raise RejectedError("PID 1: message too long")
    fields = connection.take(_aligned(fields_size, 8))[:fields_size]
    return _Message(head[1], order, fields, connection.take(body_size))


def _reply_serial(message: _Message) -> int:
    """Return header field REPLY_SERIAL, 0 where there is none.

    The fields are structs at multiples of 8 (code, signature, value); others are walked over.
    """
    at = 0
    while at < len(message.fields):
        at = _aligned(at, 8)
        code, length = message.fields[at], message.fields[at + 1]
        signature = message.fields[at + 2 : at + 2 + length]
        at += length + 3
        if signature == b"g":
            at += message.fields[at] + 2
            continue
        at = _aligned(at, 4)
        (number,) = struct.unpack_from(f"{message.order}I", message.fields, at)
        if code == _REPLY_SERIAL:
            return int(number)
        at += 4 if signature == b"u" else 4 + number + 1
    return 0


def _parse_value(message: _Message, name: str) -> Value:
    """Return what the answer's variant holds: its signature, then the value where it is aligned."""
    if message.kind == _ERROR:
        raise RejectedError(f"PID 1: does not tell its {name}")
    end = 1 + message.body[0]
    signature, at = message.body[1:end], end + 1
    order, body = message.order, message.body
    match signature:
        case b"s":
            return _read_text(order, body, _aligned(at, 4))[0]
        case b"as":
            return _read_texts(order, body, _aligned(at, 4))
        case b"b" | b"u" | b"i":
            return int(struct.unpack_from(f"{order}I", body, _aligned(at, 4))[0])
        case b"t" | b"x":
            return int(struct.unpack_from(f"{order}Q", body, _aligned(at, 8))[0])
        case _:
            _refuse(name)


def _refuse(name: str) -> NoReturn:
    raise RejectedError(f"PID 1: its {name} is of another kind")


def _read_texts(order: str, body: bytes, at: int) -> tuple[str, ...]:
    (size,) = struct.unpack_from(f"{order}I", body, at)
    at += 4
    end = at + int(size)
    found: list[str] = []
    while at < end:
        text, at = _read_text(order, body, _aligned(at, 4))
        found.append(text)
    return tuple(found)


def _read_text(order: str, body: bytes, at: int) -> tuple[str, int]:
    """Return a text and where it ends, its NUL behind it."""
    (size,) = struct.unpack_from(f"{order}I", body, at)
    end = at + 4 + int(size)
    return body[at + 4 : end].decode(), end + 1


def _text(value: str) -> bytes:
    encoded = value.encode("ascii")
    return struct.pack("<I", len(encoded)) + encoded + b"\0"


def _signature(value: str) -> bytes:
    return bytes((len(value),)) + value.encode("ascii") + b"\0"


def _pad(content: bytes, boundary: int) -> bytes:
    return content.ljust(_aligned(len(content), boundary), b"\0")


def _aligned(size: int, boundary: int) -> int:
    return (size + boundary - 1) // boundary * boundary


_HELLO = _call(
    _HELLO_SERIAL,
    (
        (1, "o", "/org/freedesktop/DBus"),
        (6, "s", "org.freedesktop.DBus"),
        (2, "s", "org.freedesktop.DBus"),
        (3, "s", "Hello"),
    ),
)
