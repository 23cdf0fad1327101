"""Sealed files: every flipped bit is damage, and what is read is what was written."""

from __future__ import annotations

import json

import pytest

from checkpointd.errors import DamagedError, FieldError, NewerSchemaError
from checkpointd.model.checkpoint import Checkpoint, NodeRecord
from checkpointd.store import codec
from tests.builders import stored


def test_a_checkpoint_comes_back_as_it_was() -> None:
    wanted = stored.checkpoint(stored.candidate())
    assert codec.unseal_as(Checkpoint, codec.seal(codec.encode(wanted)), "state.json") == wanted


@pytest.mark.parametrize("damage", ["empty", "truncated", "null", "not-json", "hand-edited"])
def test_d5_damaged_bytes_are_found(damage: str) -> None:
    sealed = codec.seal(codec.encode(stored.node_record()))
    broken = {
        "empty": b"",
        "truncated": sealed[:-5],
        "null": bytes(len(sealed)),
        "not-json": b"hello",
        "hand-edited": sealed.replace(b"node-1", b"node-2"),
    }[damage]
    with pytest.raises(DamagedError, match=r"node\.json"):
        codec.unseal_as(NodeRecord, broken, "node.json")


def test_d5_each_flipped_bit_is_damage_and_never_a_newer_schema() -> None:
    sealed = codec.seal({"a": 1})
    for position in range(len(sealed) * 8):
        broken = bytearray(sealed)
        broken[position // 8] ^= 1 << position % 8
        with pytest.raises(DamagedError):
            codec.unseal(bytes(broken), "file")


def test_f4_a_newer_schema_is_told_apart() -> None:
    rest = b'"schema":2,"body":{"unheard":"of"}}\n'
    sealed = b'{"checksum":"%b",%b' % (codec.checksum(rest).encode(), rest)
    with pytest.raises(NewerSchemaError, match="schema 2"):
        codec.unseal(sealed, "node.json")


def test_f4_a_field_that_an_older_program_did_not_write_takes_its_default() -> None:
    written = json.loads(json.dumps(codec.encode(stored.activation(stored.candidate()))))
    del written["rule"]
    assert codec.decode(type(stored.activation(stored.candidate())), written).rule == ""


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("phase", "dancing", r"Checkpoint\.phase: 'dancing' is not one of Phase"),
        ("activations", "3", r"Checkpoint\.activations: expected int, got str"),
        ("activations", True, r"Checkpoint\.activations: expected int, got bool"),
        ("slot", None, r"Checkpoint\.slot: expected an object"),
        ("history", {}, r"Checkpoint\.history: expected a list"),
        ("sandbox_ids", [1], r"Checkpoint\.sandbox_ids\[0\]: expected str"),
    ],
)
def test_a_wrong_field_is_named(field: str, value: object, said: str) -> None:
    written = json.loads(json.dumps(codec.encode(stored.checkpoint())))
    written[field] = value
    with pytest.raises(FieldError, match=said):
        codec.decode(Checkpoint, written)


def test_a_missing_field_is_named() -> None:
    written = json.loads(json.dumps(codec.encode(stored.checkpoint())))
    del written["parent"]["uid"]
    with pytest.raises(FieldError, match=r"Checkpoint\.parent\.uid: missing"):
        codec.decode(Checkpoint, written)


def test_a_lone_surrogate_from_the_api_can_be_written() -> None:
    assert codec.unseal(codec.seal({"a": "\ud800"}), "file") == {"a": "\ud800"}
