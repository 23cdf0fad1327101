"""Operators' words: read one by one, a bad file is named and the others count."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkpointd.errors import FieldError
from checkpointd.model.observation import Override, Verb
from checkpointd.store import overrides


def test_words_are_read_by_name(tmp_path: Path) -> None:
    at = tmp_path / "overrides"
    at.mkdir()
    (at / "node.json").write_text('{"verb": "hold", "until": "2026-01-01T00:00:00Z"}')
    (at / "kube-system.ds.api.json").write_text('{"verb": "activate", "reason": "drill"}')
    (at / ".checkpointd-x.json").write_text("half")
    (at / "README").write_text("not one of them")
    found = overrides.read_overrides(tmp_path)
    assert found.problems == ()
    assert found.words == {
        "node": Override(verb=Verb.HOLD, until="2026-01-01T00:00:00Z", reason=""),
        "kube-system.ds.api": Override(verb=Verb.ACTIVATE, until="", reason="drill"),
    }


def test_a_bad_file_is_named_and_the_others_count(tmp_path: Path) -> None:
    at = tmp_path / "overrides"
    at.mkdir()
    (at / "node.json").write_text("{")
    (at / "a.b.json").write_text('{"verb": "hold"}')
    (at / "link.json").symlink_to("/etc/passwd")
    found = overrides.read_overrides(tmp_path)
    assert list(found.words) == ["a.b"]
    assert found.unread == {"node", "link"}
    assert [line.split(":")[0] for line in found.problems] == ["override not understood"] * 2
    assert "node.json" in found.problems[1]


def test_no_directory_means_no_words(tmp_path: Path) -> None:
    assert overrides.read_overrides(tmp_path) == overrides.Overrides(words={})


def test_a_store_that_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    found = overrides.read_overrides(tmp_path / "absent")
    assert "cannot be read" in found.problems[0]
    assert found.all_unread


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"[]", "expected an object"),
        (b"{}", "verb: missing"),
        (b'{"verb": 1}', "verb: expected a string"),
        (b'{"verb": "stop"}', "verb 'stop' is not one of hold, activate, deactivate"),
        (b'{"verb": "hold", "until": "tomorrow"}', "until 'tomorrow' is not a time"),
        (b'{"verb": "hold", "until": "2026-01-01T00:00:00"}', "is not a time"),
    ],
)
def test_what_cannot_be_understood_names_file_and_field(content: bytes, said: str) -> None:
    with pytest.raises(FieldError, match=said) as caught:
        overrides.parse_override(content, "overrides/node.json")
    assert "overrides/node.json" in str(caught.value)
