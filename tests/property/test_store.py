"""What is written to the store is what is read, whatever it says; bad bytes raise our own error."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from checkpointd.errors import DamagedError, FieldError
from checkpointd.model.checkpoint import Checkpoint, NodeRecord
from checkpointd.store import codec, overrides

st.register_type_strategy(float, st.floats(allow_nan=False, allow_infinity=False))


@given(st.from_type(Checkpoint))
def test_every_checkpoint_comes_back_as_it_was(wanted: Checkpoint) -> None:
    assert codec.unseal_as(Checkpoint, codec.seal(codec.encode(wanted)), "state.json") == wanted


@given(st.from_type(NodeRecord))
def test_every_node_record_comes_back_as_it_was(wanted: NodeRecord) -> None:
    assert codec.unseal_as(NodeRecord, codec.seal(codec.encode(wanted)), "node.json") == wanted


@given(st.from_type(NodeRecord), st.data())
def test_no_damaged_byte_goes_unseen(record: NodeRecord, data: st.DataObject) -> None:
    sealed = bytearray(codec.seal(codec.encode(record)))
    position = data.draw(st.integers(0, len(sealed) - 1))
    sealed[position] ^= data.draw(st.integers(1, 255))
    try:
        codec.unseal(bytes(sealed), "node.json")
    except DamagedError:
        return
    raise AssertionError("read in spite of the damage")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from(["slot", "phase", "parent", "since", "x"]), json_values))
def test_any_json_is_a_checkpoint_or_a_field_error(value: dict[str, object]) -> None:
    try:
        codec.decode(Checkpoint, value)
    except FieldError:
        return


@given(st.binary(max_size=200))
def test_any_bytes_are_a_word_or_a_field_error(content: bytes) -> None:
    try:
        overrides.parse_override(content, "node.json")
    except FieldError:
        return
