from __future__ import annotations

import json
from collections.abc import Iterator

import hypothesis
import pytest
from hypothesis import strategies

from checkpointd.clients import item_stream
from checkpointd.errors import RejectedError

ITEMS = [{"metadata": {"name": 'ä"]}'}}, {"n": [1, {"a": -2.5e3}]}, {}]


def read(body: bytes, size: int = 7) -> list[object]:
    chunks = (body[at : at + size] for at in range(0, len(body), size))
    return [dict(item) for item in item_stream.read_items(chunks, "test")]


@pytest.mark.parametrize("size", [1, 2, 3, 64, 10_000])
def test_items_are_read_however_the_stream_is_cut(size: int) -> None:
    body = {"kind": "List", "metadata": {"n": 1}, "items": ITEMS, "end": None}

    assert read(json.dumps(body, indent=1, ensure_ascii=False).encode(), size) == ITEMS


@pytest.mark.parametrize("body", ["{}", ' { "items" : null } ', '{"items":[]}', '{"a":1}\n'])
def test_a_list_without_items_is_empty(body: str) -> None:
    assert read(body.encode()) == []


def test_every_truncation_is_an_error() -> None:
    whole = json.dumps({"kind": "List", "items": ITEMS, "n": 12}).encode()
    for length in range(len(whole)):
        with pytest.raises(RejectedError):
            read(whole[:length])


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b"null",
        b'{"items":{}}',
        b'{"items":[1]}',
        b'{"items":[{}],}',
        b'{"items":[{}]} x',
        b'{"items" [{}]}',
        b'{"items":[{},]}',
        b'{"items":["\xff"]}',
        b'{"items":[' + b"[" * 100_000,
    ],
)
def test_what_is_not_one_list_is_an_error(body: bytes) -> None:
    with pytest.raises(RejectedError, match="test: the answer"):
        read(body, size=65536)


def test_an_endless_item_is_an_error() -> None:
    def endless() -> Iterator[bytes]:
        yield b'{"items":[{"a":"'
        while True:
            yield b"x" * 1_000_000

    with pytest.raises(RejectedError):
        list(item_stream.read_items(endless(), "test"))


@hypothesis.given(strategies.binary(max_size=60), strategies.integers(1, 9))
def test_any_bytes_give_items_or_our_error(body: bytes, size: int) -> None:
    try:
        read(body, size)
    except RejectedError:
        return


@hypothesis.given(
    strategies.lists(
        strategies.dictionaries(strategies.text(max_size=4), strategies.text(max_size=9)),
        max_size=5,
    ),
    strategies.integers(1, 50),
)
def test_what_was_written_is_read(items: list[dict[str, str]], size: int) -> None:
    assert read(json.dumps({"a": 1, "items": items}).encode(), size) == items
