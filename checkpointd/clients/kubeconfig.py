"""Read a kubeconfig: where the API server is, whom to trust, and who we are.

Everything that is wrong is a SourceError that names file and key, never a value. Nothing is written
to disk: embedded keys stay in memory.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar
from urllib.parse import SplitResult, urlsplit

from checkpointd import json_fields
from checkpointd.clients import yaml_text
from checkpointd.errors import FieldError, SourceError
from checkpointd.json_fields import Json

LARGEST_FILE = 1024 * 1024
"""Bytes of a kubeconfig, certificate, key or token: client-go's own limit for tokens is lower."""

_V = TypeVar("_V")

Stamp = tuple[int, int, int]
"""mtime in nanoseconds, inode, size: another one means that a file was rotated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Hold one credential: in a file that may rotate, or embedded.

    ``key`` names kubeconfig and key in errors.
    """

    key: str
    path: Path | None = None
    embedded: bytes = field(default=b"", repr=False)

    def read(self) -> bytes:
        """Return its bytes as they are now. Raises SourceError."""
        return self.embedded if self.path is None else read_file(self.path, self.key)

    def stamp(self) -> Stamp:
        """Return what changes when its file rotates. Raises SourceError."""
        return (0, 0, len(self.embedded)) if self.path is None else stamp_of(self.path, self.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Hold what a kubeconfig's current context says.

    ``verify_name`` is the name that the server's certificate must carry. ``ca`` is None only where
    ``insecure``. ``warnings`` are sentences for the log.
    """

    host: str
    port: int
    prefix: str
    verify_name: str
    insecure: bool
    ca: Part | None = None
    client_certificate: Part | None = None
    client_key: Part | None = None
    token: Part | None = None
    warnings: tuple[str, ...] = ()

    @property
    def server(self) -> str:
        """Return host and port for people."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def stamps(self) -> tuple[Stamp, ...]:
        """Return the stamps of all files named: others mean new credentials. Raises SourceError."""
        parts = (self.ca, self.client_certificate, self.client_key)
        return tuple(part.stamp() for part in parts if part is not None)

    def read_token(self) -> str:
        """Return the bearer token, "" where there is none. Raises SourceError."""
        if self.token is None:
            return ""
        token = self.token.read().strip()
        if not token or not all(33 <= byte <= 126 for byte in token):
            raise SourceError(f"{self.token.key}: not a token: empty, or with other characters")
        return token.decode("ascii")


class Kubeconfig:
    """Read a kubeconfig anew when its file changes: YAML is slow, and is not parsed twice."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read: tuple[Stamp, Credentials] | None = None

    def read(self) -> Credentials:
        """Return the credentials as the file has them now. Raises SourceError."""
        stamp = stamp_of(self.path, "kubeconfig")
        if self._read is None or self._read[0] != stamp:
            self._read = (stamp, read_kubeconfig(self.path))
        return self._read[1]


def read_kubeconfig(path: Path) -> Credentials:
    """Read the current context of a kubeconfig in JSON or YAML. Raises SourceError."""
    try:
        return _parse(_load(read_file(path, "kubeconfig")), path)
    except FieldError as error:
        raise SourceError(f"{path}: {error}") from error


def stamp_of(path: Path, key: str) -> Stamp:
    """Return the stamp of a file. Raises SourceError that names ``key``."""
    try:
        status = path.stat()
    except OSError as error:
        raise SourceError(f"{key}: {path}: {error.strerror}") from error
    return (status.st_mtime_ns, status.st_ino, status.st_size)


def read_file(path: Path, key: str) -> bytes:
    """Read a whole small file. Raises SourceError that names ``key``."""
    try:
        # Not blocking: a FIFO in its place must not stop us.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            content = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise SourceError(f"{key}: {path}: {error.strerror}") from error
    if len(content) > LARGEST_FILE:
        raise SourceError(f"{key}: {path}: larger than {LARGEST_FILE} bytes")
    return content


def _load(content: bytes) -> Json:
    if content.lstrip()[:1] == b"{":
        with suppress(FieldError):
            return json_fields.parse_object(content, "kubeconfig")
    return json_fields.as_object(yaml_text.parse_first(content, "kubeconfig"), "kubeconfig")


def _parse(config: Json, path: Path) -> Credentials:
    context_name = json_fields.optional_text(config, "current-context")
    context = _named(config, "contexts", "context", context_name)
    cluster_name = json_fields.text(context, "cluster")
    user_name = json_fields.optional_text(context, "user")
    cluster = _named(config, "clusters", "cluster", cluster_name)
    user: Json = _named(config, "users", "user", user_name) if user_name else {}
    return _combine(
        _Section(path, f"clusters[{cluster_name}].cluster", cluster),
        _Section(path, f"users[{user_name}].user", user),
    )


def _named(config: Json, plural: str, singular: str, name: str) -> Json:
    """Return the entry of this name; the only one where no name is given."""
    entries = json_fields.objects(config, plural)
    if not name and plural == "contexts" and len(entries) == 1:
        return json_fields.mapping(entries[0], singular)
    for entry in entries:
        if json_fields.optional_text(entry, "name") == name:
            return json_fields.mapping(entry, singular)
    if plural == "contexts" and not name:
        raise FieldError("current-context: missing")
    raise FieldError(f'{plural}: no entry is named "{name}"')


@dataclass(frozen=True, slots=True)
class _Section:
    """Read keys of one cluster or user; errors name the file and the key."""

    file: Path
    name: str
    fields: Json = field(repr=False)

    def where(self, key: str) -> str:
        return f"{self.file}: {self.name}.{key}"

    def text(self, key: str) -> str:
        return self._get(json_fields.optional_text, key)

    def boolean(self, key: str) -> bool:
        return self._get(json_fields.boolean, key)

    def part(self, key: str) -> Part | None:
        """Return ``<key>-data`` (wins, as in client-go) or the file that ``key`` names."""
        encoded = self.text(f"{key}-data")
        if encoded:
            return Part(key=self.where(f"{key}-data"), embedded=self._decode(f"{key}-data"))
        return self.file_part(key)

    def file_part(self, key: str) -> Part | None:
        named = self.text(key)
        return Part(key=self.where(key), path=self.file.parent / named) if named else None

    def refuse(self, reasons: Mapping[str, str]) -> None:
        for key, reason in reasons.items():
            if self.fields.get(key):
                raise SourceError(f"{self.where(key)}: {reason}")

    def _decode(self, key: str) -> bytes:
        try:
            return base64.b64decode("".join(self.text(key).split()), validate=True)
        except (ValueError, binascii.Error) as error:
            raise SourceError(f"{self.where(key)}: not base64") from error

    def _get(self, getter: Callable[[Json, str], _V], key: str) -> _V:
        try:
            return getter(self.fields, key)
        except FieldError as error:
            raise SourceError(f"{self.file}: {self.name}.{error}") from error


def _combine(cluster: _Section, user: _Section) -> Credentials:
    cluster.refuse({"proxy-url": "a proxy is not supported: name the server itself"})
    user.refuse(
        {
            "exec": "an exec plugin is not supported yet: use a client certificate or a tokenFile",
            "auth-provider": "not supported: use a client certificate or a tokenFile",
            "username": "not supported: use a client certificate or a tokenFile",
        }
    )
    address = _server(cluster)
    insecure = cluster.boolean("insecure-skip-tls-verify")
    ca = None if insecure else cluster.part("certificate-authority")
    if ca is None and not insecure:
        where = cluster.where("certificate-authority")
        raise SourceError(f"{where}: missing: the system's own authorities are never trusted")
    certificate, key = user.part("client-certificate"), user.part("client-key")
    if (certificate is None) != (key is None):
        missing = "client-certificate" if certificate is None else "client-key"
        raise SourceError(f"{user.where(missing)}: missing: the other of the pair is there")
    host = address.hostname or ""
    return Credentials(
        host=host,
        port=address.port or 443,
        prefix=address.path.rstrip("/"),
        verify_name=cluster.text("tls-server-name") or host,
        insecure=insecure,
        ca=ca,
        client_certificate=certificate,
        client_key=key,
        token=_token(user),
        warnings=_warnings(cluster, insecure=insecure),
    )


def _server(cluster: _Section) -> SplitResult:
    server = cluster.text("server")
    try:
        address = urlsplit(server if "://" in server else f"https://{server}")
        usable = address.scheme == "https" and address.hostname and (address.port or 443) > 0
    except ValueError:
        usable = None
        address = SplitResult("", "", "", "", "")
    if not server or not usable or "@" in address.netloc:
        raise SourceError(f"{cluster.where('server')}: expected https://<host>[:<port>]")
    return address


def _token(user: _Section) -> Part | None:
    # client-go: tokenFile takes precedence over token, which it refreshes.
    from_file = user.file_part("tokenFile")
    if from_file is not None:
        return from_file
    token = user.text("token")
    return Part(key=user.where("token"), embedded=token.encode()) if token else None


def _warnings(cluster: _Section, *, insecure: bool) -> tuple[str, ...]:
    if not insecure:
        return ()
    where = cluster.where("insecure-skip-tls-verify")
    return (f"{where}: the API server's certificate is not verified: anybody may pose as it",)
