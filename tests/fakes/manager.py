"""PID 1's private D-Bus socket, or a system bus, with the properties that are asked for, in moods.

Written from the D-Bus specification, apart from the client: authentication line by line, messages
of either byte order, signals between them.
"""

from __future__ import annotations

import socket
import struct
import threading
from enum import Enum
from pathlib import Path
from types import TracebackType

_CALL = (b"org.freedesktop.DBus.Properties", b"Get")
_HELLO = (b"org.freedesktop.DBus", b"Hello")
_STATE = ("/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager", "SystemState")

Value = str | int | bool | tuple[str, ...]


class Mood(Enum):
    """Say how the answer comes."""

    WELL = "answers"
    BIG_ENDIAN = "answers in the other byte order"
    SIGNALS_FIRST = "sends signals, and answers to others, before the answer"
    IN_PIECES = "sends the answer byte by byte"
    REFUSES = "does not authenticate"
    ERROR = "answers with an error"
    NUMBER = "answers with a number"
    SILENT = "takes the question and says nothing"
    CLOSES = "closes when asked"
    GARBAGE = "answers with something else"
    ENDLESS = "sends a line without an end"


class FakeManager:
    """Listen at ``path``; ``state`` is the SystemState, ``mood`` how it is told.

    ``properties`` are further ones, by (end of the object's path, name). With ``is_bus`` it is a
    bus daemon, which answers nobody who has not said hello.
    """

    def __init__(self, path: Path, state: str = "running", *, is_bus: bool = False) -> None:
        self.path = path
        self.is_bus = is_bus
        self.greeted = False
        self.state = state
        self.mood = Mood.WELL
        self.properties: dict[tuple[str, str], Value] = {}
        self._asked: Value | None = state
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="fake PID 1", daemon=True)
        self._thread.start()

    def __enter__(self) -> FakeManager:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening and end."""
        self._done.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)
        self._listener.close()

    def _serve(self) -> None:
        while not self._done.is_set():
            try:
                stream, _ = self._listener.accept()
            except OSError:
                return
            with stream:
                stream.settimeout(10)
                try:
                    self._answer(stream)
                except OSError:
                    continue

    def _answer(self, stream: socket.socket) -> None:
        self.greeted = False
        opening = stream.recv(4096)
        if not (opening.startswith(b"\0AUTH EXTERNAL ") and opening.endswith(b"\r\nBEGIN\r\n")):
            # systemd may stall on a message that comes with BEGIN: this one always does.
            stream.recv(1)
            return
        with stream.makefile("rb") as reader:
            if self.mood is Mood.ENDLESS:
                stream.sendall(b"OK" * 4096)
                reader.read(1)
            refuses = self.mood is Mood.REFUSES
            stream.sendall(b"REJECTED EXTERNAL\r\n" if refuses else b"OK 0123\r\n")
            # The other side goes first.
            while len(head := reader.read(16)) == 16:
                body_size, serial, fields_size = struct.unpack("<III", head[4:])
                rest = reader.read(-(-fields_size // 8) * 8 + body_size)
                if self.is_bus and all(word + b"\0" in rest for word in _HELLO):
                    self.greeted = True
                    stream.sendall(_message(2, serial, b"", ""))
                    stream.sendall(_message(4, 0, b"", "", member="NameAcquired"))
                if self.greeted is self.is_bus and all(word + b"\0" in rest for word in _CALL):
                    self._asked = self._find(rest)
                    self._speak(stream, serial)

    def _find(self, call: bytes) -> Value | None:
        if all(word.encode() + b"\0" in call for word in _STATE):
            return self.state
        for (path, name), value in self.properties.items():
            if path.encode() + b"\0" in call and name.encode() + b"\0" in call:
                return value
        return None

    def _speak(self, stream: socket.socket, serial: int) -> None:
        match self.mood:
            case Mood.SILENT:
                return
            case Mood.CLOSES:
                stream.shutdown(socket.SHUT_RDWR)
            case Mood.GARBAGE:
                stream.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            case Mood.ERROR:
                stream.sendall(_message(3, serial, b"", "", error="org.freedesktop.Failed"))
            case Mood.NUMBER:
                stream.sendall(_message(2, serial, b"\1u\0\0" + struct.pack("<I", 7), "v"))
            case Mood.IN_PIECES:
                for byte in self._reply(serial):
                    stream.sendall(bytes((byte,)))
            case Mood.SIGNALS_FIRST:
                signal = _message(4, 0, b"", "", member="JobNew")
                stream.sendall(signal + _message(2, serial + 1, b"", "") + self._reply(serial))
            case _:
                stream.sendall(self._reply(serial))

    def _reply(self, serial: int) -> bytes:
        order = ">" if self.mood is Mood.BIG_ENDIAN else "<"
        if self._asked is None:
            return _message(3, serial, b"", "", error="org.freedesktop.DBus.Error.UnknownProperty")
        return _message(2, serial, _variant(self._asked, order), "v", order=order)


def _message(  # a fake's marshaller: what the fields may be is the protocol's
    kind: int,
    reply_serial: int,
    body: bytes,
    signature: str,
    *,
    order: str = "<",
    member: str = "",
    error: str = "",
) -> bytes:
    fields = b""
    for code, value in ((1, "/org/freedesktop/systemd1"), (3, member), (4, error)):
        if value:
            fields = _pad(fields) + bytes((code, 1, ord("o" if code == 1 else "s"), 0))
            fields += _string(value, order)
    if signature:
        fields = (
            _pad(fields) + bytes((8, 1, ord("g"), 0, len(signature))) + signature.encode() + b"\0"
        )
    if reply_serial:
        fields = _pad(fields) + b"\5\1u\0" + struct.pack(f"{order}I", reply_serial)
    mark = b"l" if order == "<" else b"B"
    head = mark + struct.pack(f"{order}BBBIII", kind, 1, 1, len(body), 99, len(fields))
    return _pad(head + fields) + body


def _variant(value: Value, order: str) -> bytes:
    match value:
        case str():
            return b"\1s\0\0" + _string(value, order)
        case bool():
            return b"\1b\0\0" + struct.pack(f"{order}I", value)
        case int():
            return b"\1t\0" + b"\0" * 5 + struct.pack(f"{order}Q", value)
        case _:
            listed = b""
            for one in value:
                listed = listed.ljust(-(-len(listed) // 4) * 4, b"\0") + _string(one, order)
            return b"\2as\0" + struct.pack(f"{order}I", len(listed)) + listed


def _string(value: str, order: str) -> bytes:
    return struct.pack(f"{order}I", len(value)) + value.encode() + b"\0"


def _pad(content: bytes) -> bytes:
    return content.ljust(-(-len(content) // 8) * 8, b"\0")
