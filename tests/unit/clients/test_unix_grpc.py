from __future__ import annotations

import socket
from pathlib import Path

import pytest

from checkpointd.clients.unix_grpc import UnixGrpc, check_socket
from checkpointd.errors import RefusedError, RejectedError, SilentError


@pytest.mark.parametrize(
    "endpoint",
    ["unix:///run/containerd/containerd.sock", "unix:/run/containerd/containerd.sock"],
)
def test_the_ways_to_write_an_endpoint_are_the_same_path(endpoint: str) -> None:
    assert check_socket(endpoint) == check_socket("/run/containerd/containerd.sock")


@pytest.mark.parametrize(
    "endpoint",
    ["", "run/x.sock", "tcp://127.0.0.1:1", "unix://x", "npipe:////./pipe/x", "/a/../b", "/a\0b"],
)
def test_what_is_no_unix_socket_is_rejected(endpoint: str) -> None:
    with pytest.raises(RejectedError, match="not the path"):
        check_socket(endpoint)


def test_a_path_that_the_kernel_would_cut_is_rejected() -> None:
    with pytest.raises(RejectedError, match="too long"):
        check_socket("/" + "x" * 107)


def test_a_missing_socket_refuses_at_once(tmp_path: Path) -> None:
    with pytest.raises(RefusedError):
        UnixGrpc(str(tmp_path / "none.sock")).call("/v1.X/Y", b"", timeout=60.0)


def test_a_file_that_is_no_socket_refuses(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(RefusedError):
        UnixGrpc(str(tmp_path / "file")).call("/v1.X/Y", b"", timeout=60.0)


def test_a_socket_that_nobody_reads_is_silent_when_the_deadline_is_over(tmp_path: Path) -> None:
    path = tmp_path / "dead socket.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
        dead.listen()

        with pytest.raises(SilentError):
            UnixGrpc(str(path)).call("/v1.X/Y", b"", timeout=0.1)
