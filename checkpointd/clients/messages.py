"""Make protobuf messages from a table in code: no generated module, hence no version to match.

Stubs that ``protoc`` writes refuse a protobuf older than the one that they were made for, and often
a newer one. A descriptor built at run time works from 3.21 (Debian 12) to the newest. This module
knows no service and does no I/O. protobuf is imported at the first message, not with this module.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

from checkpointd.errors import RejectedError

if TYPE_CHECKING:  # loaded late: see _build
    from google.protobuf.descriptor import Descriptor
    from google.protobuf.descriptor_pb2 import DescriptorProto
    from google.protobuf.message import Message

_SCALARS = frozenset({"int32", "int64", "string", "uint32", "uint64"})
_MAP = "map"


@dataclass(frozen=True, slots=True)
class Field:
    """Describe one field; ``kind`` is a scalar's name, ``map`` (string to string) or a message's.

    An enum is an ``int32`` here: the same bytes (protobuf.dev/programming-guides/encoding), and a
    value that this program does not know stays what it is.
    """

    name: str
    number: int
    kind: str = "string"
    repeated: bool = False


Table = Mapping[str, tuple[Field, ...]]


class Messages:
    """Encode and decode the messages of one table as those of one protobuf package."""

    def __init__(self, package: str, table: Table) -> None:
        self.package = package
        self._table = table
        self._lock = threading.Lock()
        self._types: Mapping[str, type[Message]] = {}

    def encode(self, name: str, fields: Mapping[str, object]) -> bytes:
        """Serialise message ``name`` with these fields."""
        return self.type_of(name)(**fields).SerializeToString()

    def decode(self, name: str, payload: bytes) -> Message:
        """Parse message ``name``. Raises RejectedError for bytes that are none."""
        from google.protobuf.message import DecodeError

        message = self.type_of(name)()
        try:
            message.ParseFromString(payload)
        except (DecodeError, UnicodeDecodeError) as error:
            raise RejectedError(f"{self.package}.{name}: the answer cannot be read") from error
        return message

    def type_of(self, name: str) -> type[Message]:
        """Return the class of message ``name``."""
        with self._lock:
            if not self._types:
                self._types = _build(self.package, self._table)
        return self._types[name]


def _build(package: str, table: Table) -> Mapping[str, type[Message]]:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(
        name=f"checkpointd/{package}.proto", package=package, syntax="proto3"
    )
    for name, fields in table.items():
        _describe(file.message_type.add(name=name), package, fields)
    # A pool of our own: another library in this process may know the same package.
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    if hasattr(message_factory, "GetMessageClass"):  # from 4.22
        make = message_factory.GetMessageClass
    else:
        make = cast("_FormerFactory", message_factory.MessageFactory(pool)).GetPrototype
    return {name: make(pool.FindMessageTypeByName(f"{package}.{name}")) for name in table}


class _FormerFactory(Protocol):
    """What MessageFactory was before 4.22."""

    def GetPrototype(self, descriptor: Descriptor) -> type[Message]: ...  # noqa: N802 - its name


def _describe(message: DescriptorProto, package: str, fields: tuple[Field, ...]) -> None:
    for field in fields:
        made = message.field.add(name=field.name, number=field.number)
        is_list = field.repeated or field.kind == _MAP
        made.label = made.LABEL_REPEATED if is_list else made.LABEL_OPTIONAL
        if field.kind in _SCALARS:
            made.type = made.Type.Value(f"TYPE_{field.kind.upper()}")
            continue
        kind = field.kind
        if kind == _MAP:
            kind = f"{message.name}.{_add_entry(message, field.name)}"
        made.type = made.TYPE_MESSAGE
        made.type_name = f".{package}.{kind}"


def _add_entry(message: DescriptorProto, name: str) -> str:
    """Add the entry type that a map field is short for (protobuf's language guide, "maps")."""
    entry = message.nested_type.add(name="".join(p.title() for p in name.split("_")) + "Entry")
    for number, part in enumerate(("key", "value"), start=1):
        field = entry.field.add(name=part, number=number)
        field.label, field.type = field.LABEL_OPTIONAL, field.TYPE_STRING
    entry.options.map_entry = True
    return entry.name
