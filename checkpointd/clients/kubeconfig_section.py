"""Read the typed keys of one entry of a kubeconfig; what is wrong is named by file and key."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from checkpointd import json_fields
from checkpointd.clients.key_files import Part
from checkpointd.errors import FieldError, SourceError
from checkpointd.json_fields import Json

_V = TypeVar("_V")


@dataclass(frozen=True, slots=True)
class Section:
    """Read keys of one cluster or user. All raises SourceError that names the file and the key."""

    file: Path
    name: str
    fields: Json = field(repr=False)

    def where(self, key: str) -> str:
        """Return file and key, for errors."""
        return f"{self.file}: {self.name}.{key}"

    def text(self, key: str) -> str:
        """Return a string, "" where there is none."""
        return self.get(json_fields.optional_text, key)

    def boolean(self, key: str) -> bool:
        """Return a truth value, False where there is none."""
        return self.get(json_fields.boolean, key)

    def part(self, key: str) -> Part | None:
        """Return ``<key>-data`` (wins, as in client-go) or the file that ``key`` names."""
        encoded = self.text(f"{key}-data")
        if encoded:
            return Part(key=self.where(f"{key}-data"), embedded=self._decode(f"{key}-data"))
        return self.file_part(key)

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of strings, empty where there is none."""
        return self.get(_read_texts, key)

    def file_part(self, key: str) -> Part | None:
        """Return the file that ``key`` names, beside the kubeconfig where it is relative."""
        named = self.text(key)
        return Part(key=self.where(key), path=self.file.parent / named) if named else None

    def refuse(self, reasons: Mapping[str, str]) -> None:
        """Refuse each of these keys that is there."""
        for key, reason in reasons.items():
            if self.fields.get(key):
                raise SourceError(f"{self.where(key)}: {reason}")

    def get(self, getter: Callable[[Json, str], _V], key: str) -> _V:
        """Return what ``getter`` reads."""
        try:
            return getter(self.fields, key)
        except FieldError as error:
            raise SourceError(f"{self.file}: {self.name}.{error}") from error

    def _decode(self, key: str) -> bytes:
        try:
            return base64.b64decode("".join(self.text(key).split()), validate=True)
        except (ValueError, binascii.Error) as error:
            raise SourceError(f"{self.where(key)}: not base64") from error


def _read_texts(fields: Json, key: str) -> tuple[str, ...]:
    found = json_fields.sequence(fields, key)
    return tuple(json_fields.as_text(one, f"{key}[{i}]") for i, one in enumerate(found))
