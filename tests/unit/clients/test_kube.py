"""The client against a server that fails: each fault has its error, and its time."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpointd import json_fields
from checkpointd.clients import kube_answers, kube_connection, kube_transport
from checkpointd.clients.kube import Timeouts
from checkpointd.clients.kubeconfig import Kubeconfig, read_kubeconfig
from checkpointd.errors import RefusedError, RejectedError, SilentError, SourceError
from checkpointd.json_fields import Json
from tests.fakes import pki
from tests.fakes.api_access import NODE, SHORT, Handed, bound_pod, hand
from tests.fakes.api_faults import Fault
from tests.fakes.api_server import ApiServer

BRIEF = Timeouts(connect=0.2, read=0.2)


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(pki.shared()) as running:
        yield running


@pytest.fixture
def handed(server: ApiServer, tmp_path: Path) -> Iterator[Handed]:
    with hand(server, tmp_path) as open_clients:
        yield open_clients


def write_kubeconfig(server: ApiServer, directory: Path, user: dict[str, object]) -> Path:
    (directory / "ca.crt").write_bytes(server.pki.ca.certificate)
    cluster = {"server": server.url, "certificate-authority": "ca.crt"}
    path = directory / "kubelet.conf"
    path.write_bytes(pki.kubeconfig_of(cluster, user))
    return path


def name_of(raw: Json) -> str:
    return json_fields.text(raw, "metadata", "name")


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (Fault.RESET, RefusedError),
        (Fault.CLOSE_IN_HANDSHAKE, RefusedError),
        (Fault.CLOSE, RefusedError),
        (Fault.HANG_IN_HANDSHAKE, SilentError),
        (Fault.HANG, SilentError),
        (Fault.DRIP, SilentError),
    ],
)
def test_h11_no_connection_holds_the_client_longer_than_it_may(
    server: ApiServer, handed: Handed, fault: Fault, expected: type[SourceError]
) -> None:
    # A fault hangs for a minute: that the call returns at all is the proof.
    server.break_(fault)
    with pytest.raises(expected):
        handed.client(BRIEF).get_node(NODE)


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        (Fault.UNAUTHORIZED, 401),
        (Fault.FORBIDDEN, 403),
        (Fault.NOT_FOUND, 404),
        (Fault.GONE, 410),
        (Fault.TOO_MANY, 429),
        (Fault.INTERNAL, 500),
        (Fault.UNAVAILABLE, 503),
        (Fault.HTML, 200),
        (Fault.TRUNCATED, 0),
        (Fault.NULL_ITEMS, 0),
        (Fault.NO_VERSION, 0),
        (Fault.WRONG_KIND, 0),
    ],
)
def test_b1_no_other_answer_passes_for_an_empty_list(
    server: ApiServer, handed: Handed, fault: Fault, status: int
) -> None:
    server.break_(fault)
    with pytest.raises(RejectedError) as caught:
        handed.client().list_pods(NODE, name_of)
    assert caught.value.status == status


def test_a_404_that_does_not_name_the_node_does_not_say_that_it_is_gone(
    server: ApiServer, handed: Handed
) -> None:
    server.break_(Fault.NOT_FOUND, "/api/v1/nodes")
    with pytest.raises(RejectedError):
        handed.client().get_node(NODE)


def test_a_server_that_does_not_listen_refuses(server: ApiServer, handed: Handed) -> None:
    server.stop()
    with pytest.raises(RefusedError, match="connection refused"):
        handed.client().get_node(NODE)


def test_b1_a_list_that_expires_in_its_middle_starts_anew(
    server: ApiServer, handed: Handed
) -> None:
    for name in "abcd":
        server.store.create("pods", bound_pod(name))
    expired: list[str] = []

    def parse(raw: Json) -> str:
        if not expired:
            expired.append("once")
            server.expire_continues()
        return name_of(raw)

    client = handed.client(page_size=2)
    assert client.list_pods(NODE, parse).items == ("a", "b", "c", "d")
    assert server.count("/api/v1/pods") == 4


def test_b1_a_list_that_expires_each_time_is_no_list(server: ApiServer, handed: Handed) -> None:
    for name in "abcd":
        server.store.create("pods", bound_pod(name))

    def parse(raw: Json) -> str:
        server.expire_continues()
        return name_of(raw)

    with pytest.raises(RejectedError) as caught:
        handed.client(page_size=2).list_pods(NODE, parse)
    assert caught.value.status == 410


def test_a_watch_that_is_cut_off_fails_and_one_that_ends_does_not(
    server: ApiServer, handed: Handed
) -> None:
    client = handed.client()
    version = client.list_pods(NODE, name_of).resource_version
    with client.watch_pods(NODE, version, lambda: 10.0) as events:
        server.end_watches()
        assert list(events) == []
    with client.watch_pods(NODE, version, lambda: 10.0) as events:
        server.end_watches(abruptly=True)
        with pytest.raises(RejectedError, match="truncated"):
            next(events)


def test_h11_a_watch_that_falls_silent_is_noticed(server: ApiServer, handed: Handed) -> None:
    client = handed.client()
    version = client.list_pods(NODE, name_of).resource_version
    with client.watch_pods(NODE, version, lambda: 0.1) as events:
        with pytest.raises(SilentError):
            next(events)


def test_a_watch_is_ended_from_another_thread(server: ApiServer, handed: Handed) -> None:
    client = handed.client()
    version = client.list_pods(NODE, name_of).resource_version
    with client.watch_pods(NODE, version, lambda: 60.0) as events:
        threading.Timer(0.05, client.interrupt).start()
        with pytest.raises(SourceError):
            next(events)
    assert client.list_pods(NODE, name_of).items == ()
    client.close()
    with pytest.raises(SourceError):
        client.get_node(NODE)


def test_pages_and_objects_share_one_connection(server: ApiServer, handed: Handed) -> None:
    for name in "abc":
        server.store.create("pods", bound_pod(name))
    client = handed.client(page_size=1)
    client.get_node(NODE)
    client.list_pods(NODE, name_of)
    assert server.connections == 1
    client.drop_connections()
    client.get_node(NODE)
    assert server.connections == 2


def test_the_peers_address_is_told(server: ApiServer, handed: Handed) -> None:
    client = handed.client()
    client.get_node(NODE)
    assert client.peer == kube_connection.Peer("127.0.0.1", server.port)


def test_a_401_is_asked_once_more_with_the_token_as_it_is_now(
    server: ApiServer, tmp_path: Path, handed: Handed
) -> None:
    (tmp_path / "token").write_text("new")
    server.tokens["new"] = "system:node:node-1"
    write_kubeconfig(server, tmp_path, {"tokenFile": "token"})
    client = handed.client()
    client.get_node(NODE)
    server.tokens.clear()
    with pytest.raises(RejectedError) as caught:
        client.get_node(NODE)
    assert caught.value.status == 401
    assert server.count(f"/api/v1/nodes/{NODE}") == 3


def test_another_kubeconfig_holds_from_the_next_call_on(server: ApiServer, handed: Handed) -> None:
    client = handed.client()
    client.get_node(NODE)
    with ApiServer(pki.shared()) as other:
        handed.kubeconfig.write_bytes(other.kubeconfig())
        client.get_node(NODE)
        assert other.count(f"/api/v1/nodes/{NODE}") == 1


def test_a_pair_that_rotates_holds_from_the_next_call_on(
    server: ApiServer, tmp_path: Path, handed: Handed
) -> None:
    server.pki.node.write(tmp_path, "current")
    user: dict[str, object] = {"client-certificate": "current.pem", "client-key": "current.pem"}
    write_kubeconfig(server, tmp_path, user)
    client = handed.client()
    client.get_node(NODE)
    server.pki.ca.client("system:node:renewed").write(tmp_path, "current")
    with pytest.raises(RejectedError):
        client.get_node(NODE)
    assert server.requests[-1].user == "system:node:renewed"


def test_another_authoritys_server_is_not_trusted_and_the_remedy_is_named(
    server: ApiServer, tmp_path: Path, handed: Handed
) -> None:
    path = handed.kubeconfig
    other = pki.Authority("another")
    path.write_bytes(pki.kubeconfig(server.url, other.certificate, server.pki.node))
    with pytest.raises(RejectedError) as caught:
        handed.client().get_node(NODE)
    assert f"127.0.0.1:{server.port}" in str(caught.value)
    assert "certificate-authority" in str(caught.value)
    assert server.requests == []


def test_a_certificate_for_another_name_is_not_trusted(
    server: ApiServer, tmp_path: Path, handed: Handed
) -> None:
    path = handed.kubeconfig
    text = server.kubeconfig().decode()
    path.write_text(text.replace('"server":', '"tls-server-name": "elsewhere.example", "server":'))
    with pytest.raises(RejectedError, match="not trusted"):
        handed.client().get_node(NODE)
    path.write_text(text.replace('"server":', '"tls-server-name": "kubernetes", "server":'))
    handed.client().get_node(NODE)


def test_verification_can_be_switched_off(
    server: ApiServer, tmp_path: Path, handed: Handed
) -> None:
    path = handed.kubeconfig
    text = server.kubeconfig().decode()
    text = text.replace('"certificate-authority-data":', '"insecure-skip-tls-verify": true, "_":')
    path.write_text(text)
    handed.client().get_node(NODE)


def test_the_systems_bundle_and_proxies_are_not_used(
    server: ApiServer, handed: Handed, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"):
        monkeypatch.setenv(name, "/nonexistent")
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    handed.client().get_node(NODE)


@pytest.mark.parametrize("name", ["..", "a/../b", "", "a..b", "a b", "-a"])
def test_a_name_that_would_lead_to_another_path_is_not_asked_for(
    server: ApiServer, handed: Handed, name: str
) -> None:
    with pytest.raises(RejectedError):
        handed.client().get_daemon_set("kube-system", name)
    assert server.requests == []


def test_i1_a_name_that_cannot_be_resolved_is_silence(tmp_path: Path, handed: Handed) -> None:
    certificates = pki.shared()
    path = handed.kubeconfig
    server = "https://does-not-exist.invalid:6443"
    path.write_bytes(pki.kubeconfig(server, certificates.ca.certificate, certificates.node))
    with pytest.raises(SilentError):
        handed.client(BRIEF).get_node(NODE)


class WithoutIPv6(socket.socket):
    """Be the sockets of a kernel that was started with ipv6.disable=1."""

    def __init__(
        self, family: int = -1, type_: int = -1, proto: int = -1, fileno: int | None = None
    ) -> None:
        if family == socket.AF_INET6 and fileno is None:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        super().__init__(family, type_, proto, fileno)


def resolve_both(*_asked: object, **_named: object) -> list[tuple[object, ...]]:
    """Resolve "localhost" as /etc/hosts of most distributions does."""
    return [(0, 0, 0, "", ("::1", 0, 0, 0)), (0, 0, 0, "", ("127.0.0.1", 0))]


def test_a_kernel_without_ipv6_reaches_localhost_by_its_other_address(
    server: ApiServer, handed: Handed, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificates = pki.shared()
    url = server.url.replace("127.0.0.1", "localhost")
    config = pki.kubeconfig(url, certificates.ca.certificate, certificates.node)
    handed.kubeconfig.write_bytes(config)
    monkeypatch.setattr(socket, "getaddrinfo", resolve_both)
    monkeypatch.setattr(socket, "socket", WithoutIPv6)
    handed.client().get_node(NODE)


def test_h8_both_ways_to_a_connection_lead_to_ours(server: ApiServer, handed: Handed) -> None:
    credentials = Kubeconfig(handed.kubeconfig).read()
    dialer = kube_connection.Dialer(credentials, credentials.read(), kube_connection.OpenSockets())
    adapter = kube_transport.Adapter(credentials, dialer)
    assert adapter.get_connection(server.url) is adapter.get_connection_with_tls_context(None, True)
    adapter.close()


def test_the_servers_own_words_stay_on_one_line() -> None:
    error = kube_answers.rejection(500, b'{"message": "a\\n\\tb\\u0007"}')
    assert str(error) == "HTTP 500"
    assert str(kube_answers.rejection(500, b'{"message": "a\\nb"}')) == "HTTP 500: a b"
    assert str(kube_answers.rejection(502, b"<html>")) == (
        "HTTP 502, and no Status: what answers there is no API server (a proxy, a login page?)"
    )


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("7", 7.0), ("", 0.0), ("Wed, 21 Oct 2026 07:28:00 GMT", 0.0), ("-1", 0.0)],
)
def test_retry_after_counts_in_seconds_only(header: str, seconds: float) -> None:
    assert kube_answers.rejection(429, b"{}", header).retry_after == seconds


@pytest.mark.parametrize(
    "line", [b"{", b"[]", b'{"type": "ADDED"}', b'{"type": "OTHER", "object": {"a": 1}}', b"{}"]
)
def test_a_line_that_is_no_event_is_rejected(line: bytes) -> None:
    with pytest.raises(RejectedError):
        kube_answers.parse_event(line)


def test_credentials_that_cannot_be_read_are_a_source_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="No such file"):
        Handed(tmp_path / "absent").client(SHORT).get_node(NODE)
    with pytest.raises(SourceError, match="No such file"):
        read_kubeconfig(tmp_path / "absent")
