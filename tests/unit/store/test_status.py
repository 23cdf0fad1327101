"""Test status.json: it reads back as it was, and says when nothing but times of reading changed."""

from __future__ import annotations

import dataclasses

import pytest

from checkpointd import json_fields
from checkpointd.errors import FieldError, NewerSchemaError
from checkpointd.store import status as status_file
from tests.unit.cli import builders


def test_every_field_reads_back_as_it_was() -> None:
    status = builders.everything()
    read = status_file.parse_status(status_file.write_status(status))
    assert read == status
    # Times of reading do not count in a comparison, but are written and read.
    assert status_file.to_json(read) == status_file.to_json(status)


def test_one_line_is_written_with_the_schema() -> None:
    written = status_file.write_status(builders.everything())
    assert (written.count(b"\n"), written.endswith(b"\n")) == (1, True)
    assert json_fields.parse_object(written, "x")["schema"] == 1


def test_an_older_and_a_newer_schema_are_told_apart() -> None:
    with pytest.raises(NewerSchemaError):
        status_file.parse_status(b'{"schema": 99}')
    with pytest.raises(FieldError):
        status_file.parse_status(b'{"schema": 0}')


def test_times_of_reading_alone_make_no_new_picture() -> None:
    old = builders.everything()
    later = builders.before(-5)
    (source,) = old.sources
    one, two = old.checkpoints
    (answer,) = one.evidence
    witnesses = tuple(dataclasses.replace(each, at=later) for each in answer.witnesses)
    evidence = (dataclasses.replace(answer, witnesses=witnesses),)
    new = dataclasses.replace(
        old,
        written=later,
        sources=(dataclasses.replace(source, at=later),),
        checkpoints=(dataclasses.replace(one, evidence=evidence), two),
    )
    assert old == new
    assert old != dataclasses.replace(new, summary="else")
    assert old != dataclasses.replace(new, checkpoints=(two,))
