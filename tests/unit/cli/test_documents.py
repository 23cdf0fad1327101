"""Files of objects: documents one after the other, each told of with its line."""

from __future__ import annotations

from pathlib import Path

from checkpointd.cli import documents


def values(content: bytes) -> list[object]:
    """Return the values of a file's documents."""
    found = list(documents.parse(content, "f.yaml"))
    assert [read.problem for read in found] == [""] * len(found)
    return [read.value for read in found]


def test_yaml_documents_come_with_the_line_on_which_they_begin() -> None:
    content = b"# Source: a\n---\n# b\na: 1\n---\nb: 2\n--- # more\nc: 3\n"
    found = [(read.line, read.value) for read in documents.parse(content, "f.yaml")]
    assert found == [(4, {"a": 1}), (6, {"b": 2}), (8, {"c": 3})]


def test_windows_line_ends_and_a_byte_order_mark_are_no_matter() -> None:
    assert values(b"\xef\xbb\xbfa: 1\r\n---\r\nb: 2\r\n") == [{"a": 1}, {"b": 2}]
    assert values(b'\xef\xbb\xbf{"a": 1}') == [{"a": 1}]


def test_dashes_in_a_text_part_nothing() -> None:
    assert values(b"a: |\n  ---\n  b\n----: 1\n") == [{"a": "---\nb\n", "----": 1}]


def test_one_broken_document_does_not_hide_the_others() -> None:
    content = b"a: 1\n---\nb: [\n---\nc: 3\n---\nd: *x\n"
    first, second, third, fourth = documents.parse(content, "f.yaml")
    assert (first.value, third.value) == ({"a": 1}, {"c": 3})
    assert second.place == "f.yaml:2"
    assert second.problem == "neither JSON nor YAML in line 4 (ParserError)"
    assert fourth.problem == "in line 7: an alias without an anchor"


def test_json_objects_may_follow_each_other() -> None:
    content = b'{"a": 1}\n\n {"b": 2}{"c": 3}\n'
    found = [(read.line, read.value) for read in documents.parse(content, "f.json")]
    assert found == [(1, {"a": 1}), (3, {"b": 2}), (3, {"c": 3})]


def test_what_breaks_behind_good_json_is_told_of() -> None:
    first, second = documents.parse(b'{"a": 1}\n{"b": \n', "f.json")
    assert first.value == {"a": 1}
    assert second.problem.startswith("not JSON in line")


def test_flow_style_begins_like_json() -> None:
    assert values(b"{a: 1, b: [yes]}\n") == [{"a": 1, "b": [True]}]


def test_keys_that_stand_there_twice_are_told_with_their_path() -> None:
    (read,) = documents.parse(b"a:\n- b: 1\n  c: {d: 1, d: 2}\n  b: 2\n", "f.yaml")
    assert read.repeated == ("a[0].b", "a[0].c.d")
    (read,) = documents.parse(b'{"a": [{"b": 1, "b": 2, "b": 3}]}', "f.json")
    assert read.value == {"a": [{"b": 3}]}
    assert read.repeated == ("a[0].b",)


def test_empty_documents_are_no_documents(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("# nothing\n---\n---\na: 1\n---\n")
    assert [read.value for read in documents.read_all(str(path))] == [{"a": 1}]


def test_a_file_that_cannot_be_read_is_told_of(tmp_path: Path) -> None:
    (absent,) = documents.read_all(str(tmp_path / "absent"))
    assert absent.problem == "cannot be read: No such file or directory"
    (directory,) = documents.read_all(str(tmp_path))
    assert directory.problem == "cannot be read: Is a directory"
