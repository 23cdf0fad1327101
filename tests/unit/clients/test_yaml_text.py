"""PyYAML's own exceptions are not all YAMLError: none may end a source, none may tell a value."""

from __future__ import annotations

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
    b"!!python/object:os.system hunter2",
    b"a: 0x_",
    b"a: 2026-13-45",
    b"a: " + b"9" * 5000,
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
