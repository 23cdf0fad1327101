from __future__ import annotations

from typing import cast

import pytest

from checkpointd.clients.cri import api
from checkpointd.clients.messages import Messages
from checkpointd.errors import RejectedError

# Written by hand after the encoding's definition (protobuf.dev/programming-guides/encoding): a
# wrong number in the table cannot hide in both ends. 1 id, 2 metadata {1 name, 2 uid, 3 namespace,
# 4 attempt}, 3 state, 4 created_at, 6 annotations {1 key, 2 value}, 99 a field of the future.
SANDBOX = (
    b"\x0a\x02s1"
    b"\x12\x0f" + b"\x0a\x03etc" + b"\x12\x02u1" + b"\x1a\x02ns" + b"\x20\x03"
    b"\x18\x01"
    b"\x20\x96\x01"
    b"\x32\x06\x0a\x01k\x12\x01v"
    b"\x9a\x06\x03new"
)


def test_a_sandbox_is_read_from_the_bytes_that_the_definition_demands() -> None:
    message = cast("api.SandboxMessage", api.messages(api.V1).decode("PodSandbox", SANDBOX))

    assert (message.id, message.state, message.created_at) == ("s1", 1, 150)
    assert (message.metadata.name, message.metadata.uid) == ("etc", "u1")
    assert (message.metadata.namespace, message.metadata.attempt) == ("ns", 3)
    assert dict(message.annotations) == {"k": "v"}


def test_a_stop_is_written_as_the_bytes_that_the_definition_demands() -> None:
    encoded = api.messages(api.V1).encode(
        "StopContainerRequest", {"container_id": "c", "timeout": 30}
    )

    assert encoded == b"\x0a\x01c\x10\x1e"


def test_a_filter_by_label_is_written_as_the_bytes_that_the_definition_demands() -> None:
    fields = {"filter": {"label_selector": {"k": "v"}}}

    encoded = api.messages(api.V1ALPHA2).encode("ListContainersRequest", fields)

    assert encoded == b"\x0a\x08\x22\x06\x0a\x01k\x12\x01v"


@pytest.mark.parametrize("payload", [b"\xff\xff\xff", b"\x0a\x05s1", b"\x0a\x02\xff\xfe"])
def test_bytes_that_are_no_message_are_rejected(payload: bytes) -> None:
    with pytest.raises(RejectedError, match=r"runtime\.v1\.PodSandbox"):
        api.messages(api.V1).decode("PodSandbox", payload)


def test_both_packages_live_side_by_side() -> None:
    both = [Messages(package, api.TABLE) for package in (api.V1, api.V1ALPHA2, api.V1)]

    assert len({messages.encode("VersionRequest", {"version": "x"}) for messages in both}) == 1
