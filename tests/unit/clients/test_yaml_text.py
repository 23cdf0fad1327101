"""What others wrote may be anything: it ends no source, tells no value, and means what it means
to a kubelet.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from checkpointd.clients import kubeconfig, kubelet_process, static_pods, yaml_text
from checkpointd.errors import FieldError, SourceError

HOSTILE = [
    b"!!bool hunter2",
    b"!!int ''",
    b"!!float ''",
    b"!!timestamp hunter2",
    b"!!binary \xff",
    b"!!binary hunter2",
    b"!!int hunter2",
    b"? null\n: hunter2",
    b"a: *hunter2",
    b"&a [hunter2, *a]",
    b"a: &a {b: *a, c: hunter2}",
    b"<<: hunter2",
    b"<<: [{a: 1}, hunter2]",
    b"? {a: hunter2}\n: c",
    b"[" * 100_000,
    b"\xff\xfe\x00",
]


@pytest.mark.parametrize("content", HOSTILE)
def test_hostile_yaml_is_a_field_error_that_tells_no_value(content: bytes) -> None:
    with pytest.raises(FieldError) as caught:
        yaml_text.parse_first(content, "a file")
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("content", HOSTILE)
def test_a_hostile_file_beside_our_manifests_is_one_bad_file(content: bytes) -> None:
    assert static_pods.parse_manifest("a.yaml", content, "s").problem


@pytest.mark.parametrize("content", HOSTILE)
def test_a_hostile_file_of_the_kubelet_is_a_source_error(content: bytes) -> None:
    with pytest.raises(SourceError):
        kubelet_process.parse_config(content, "config.yaml")


def test_a_hostile_kubeconfig_is_a_source_error(tmp_path: Path) -> None:
    path = tmp_path / "kubelet.conf"
    for content in HOSTILE:
        path.write_bytes(content)
        with pytest.raises(SourceError) as caught:
            kubeconfig.read_kubeconfig(path)
        assert "hunter2" not in str(caught.value)


def test_the_first_document_counts() -> None:
    assert yaml_text.parse_first(b"a: 1\n---\nb: 2\n", "a file") == {"a": 1}
    assert yaml_text.parse_first(b"", "a file") is None


PLAIN = {
    # vendor/gopkg.in/yaml.v2/resolve.go and resolve_test.go, decode_test.go
    "y": True, "Yes": True, "on": True, "TRUE": True, "tRue": "tRue",
    "n": False, "NO": False, "Off": False, "false": False,
    "~": None, "null": None, "Null": None, "": None, "nUll": "nUll",
    "0644": 420, "0o644": 420, "0O17": 15, "-0o17": -15, "08": 8, "09.5": 9.5, "00": 0,
    "0x1F": 31, "-0x1f": -31, "0b101": 5, "+12": 12, "-0": 0,
    "1_000": 1000, "0x_": "0x_", "_1": "_1", "1__0": 10,
    "1e3": 1000, "1.5": 1.5, ".5": 0.5, "-.5e1": -5, "1.": 1, "2.50": 2.5, "1e21": 1e21,
    "1e999": "1e999", ".": ".", "..": "..", "+": "+", ".5_0": ".5_0",
    "9223372036854775807": 2**63 - 1, "9223372036854775808": 2**63,
    "-9223372036854775808": -(2**63),
    "18446744073709551615": 2**64 - 1, "18446744073709551616": 18446744073709551616,
    "22:22": "22:22", "1:30:00": "1:30:00", "8080:80": "8080:80",
    "2001-12-14": "2001-12-14", "2026-13-45": "2026-13-45",
    "2001-12-14T21:59:43Z": "2001-12-14T21:59:43Z",
    "=": "=", "a": "a", "1.2.3": "1.2.3", "10Gi": "10Gi", "500m": "500m", "infinity": "infinity",
    "9" * 5000: "9" * 5000,
}  # fmt: skip


@pytest.mark.parametrize("text", PLAIN)
def test_a_plain_scalar_means_what_it_means_to_a_kubelet(text: str) -> None:
    value = yaml_text.parse_first(f"a: {text}\n".encode(), "a file")
    # An int and a float, or a truth value, may be equal and not the same.
    assert repr(value) == repr({"a": PLAIN[text]})


@pytest.mark.parametrize(("text", "number"), [(".inf", math.inf), ("-.Inf", -math.inf)])
def test_infinity_is_a_number_that_json_does_not_have(text: str, number: float) -> None:
    assert yaml_text.parse_first(text.encode(), "a file") == number


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("'yes'", "yes"),
        ('"0644"', "0644"),
        ("! 12", 12),
        ("!!str 12", "12"),
        ("!!int '12'", 12),
        ("!!float 12", 12),
        ("!!bool 'y'", True),
        ("!!null ''", None),
        ("!!timestamp 2001-12-14", "2001-12-14"),
        ("!!binary aGFsbG8=", "hallo"),
        ("!mine 12", "12"),
        ("!!python/object:os.system x", "x"),
        ("|\n  12\n", "12\n"),
        (">-\n  12\n  13\n", "12 13"),
    ],
)
def test_quotes_and_tags_say_what_a_scalar_is(text: str, value: object) -> None:
    assert yaml_text.parse_first(f"a: {text}\n".encode(), "a file") == {"a": value}


@pytest.mark.parametrize(
    ("key", "name"), [("8080", "8080"), ("yes", "true"), ("0x10", "16"), ("1.5", "1.5")]
)
def test_a_key_is_text_at_last(key: str, name: str) -> None:
    assert yaml_text.parse_first(f"{key}: a\n".encode(), "a file") == {name: "a"}


def test_of_a_repeated_key_the_last_value_counts_and_it_is_told() -> None:
    value = yaml_text.parse_first(b"a: 1\nb: 2\na: 3\n", "a file")
    assert value == {"a": 3, "b": 2}
    assert isinstance(value, yaml_text.RepeatingObject)
    assert value.repeated == ["a"]


def test_a_merge_is_over_what_stands_before_it_and_under_what_follows() -> None:
    text = b"base: &b {k: 1, l: 2}\nother: &o {k: 7, m: 8}\nc: {k: 0, <<: [*b, *o], l: 3}\n"
    value = yaml_text.parse_first(text, "a file")
    assert isinstance(value, dict)
    assert value["c"] == {"k": 1, "l": 3, "m": 8}
    assert not isinstance(value["c"], yaml_text.RepeatingObject)


def test_a_quoted_merge_is_a_key() -> None:
    assert yaml_text.parse_first(b"'<<': 1\n", "a file") == {"<<": 1}


def test_a_bomb_of_aliases_is_refused_before_it_takes_memory() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 30)]
    with pytest.raises(FieldError, match="too many aliases"):
        yaml_text.parse_first("\n".join(lines).encode(), "a file")


def test_an_anchor_may_be_used_often() -> None:
    text = "a: &a {b: [1, 2]}\nc: [" + ", ".join(["*a"] * 1000) + "]\n"
    value = yaml_text.parse_first(text.encode(), "a file")
    assert isinstance(value, dict)
    assert value["c"] == [{"b": [1, 2]}] * 1000


def test_each_document_comes_with_its_line() -> None:
    found = list(yaml_text.parse_all(b"# first\na: 1\n---\n\nb: 2\n...\n---\n", "a file"))
    assert [(one.value, one.line) for one in found] == [({"a": 1}, 2), ({"b": 2}, 5), (None, 8)]


def test_an_anchor_of_an_earlier_document_is_none() -> None:
    with pytest.raises(FieldError, match="alias"):
        list(yaml_text.parse_all(b"a: &a 1\n---\nb: *a\n", "a file"))
