"""The client with credentials that rotate, end, are refused, or come from a plugin."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpointd.clients.kube import KubeClient
from checkpointd.errors import RefusedError, RejectedError, SilentError, SourceError
from tests.fakes import pki
from tests.fakes.api_access import NODE, Handed, bound_pod, hand
from tests.fakes.api_faults import Fault
from tests.fakes.api_server import ApiServer
from tests.fakes.credential_plugin import CredentialPlugin
from tests.fakes.http_proxy import HttpProxy

NODE_PATH = f"/api/v1/nodes/{NODE}"
NODE_USER = f"system:node:{NODE}"


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(pki.shared()) as running:
        yield running


@pytest.fixture
def handed(server: ApiServer, tmp_path: Path) -> Iterator[Handed]:
    with hand(server, tmp_path) as open_clients:
        yield open_clients


@pytest.fixture
def plugin(tmp_path: Path) -> CredentialPlugin:
    return CredentialPlugin(tmp_path)


def write(server: ApiServer, directory: Path, user: dict[str, object], **more: object) -> None:
    """Write a kubeconfig whose authority and user's files lie beside it."""
    if not (directory / "ca.crt").exists():
        (directory / "ca.crt").write_bytes(server.pki.ca.certificate)
    cluster = {"server": server.url, "certificate-authority": "ca.crt", **more}
    (directory / "kubelet.conf").write_bytes(pki.kubeconfig_of(cluster, user))


def rejection_of(client: KubeClient) -> RejectedError:
    with pytest.raises(RejectedError) as caught:
        client.get_node(NODE)
    assert "\n" not in str(caught.value)
    return caught.value


# ---- the server's certificate ----------------------------------------------------------------
def shown(server: ApiServer, handed: Handed, pair: pki.Pair) -> str:
    server.show(pair)
    error = str(rejection_of(handed.client()))
    assert error.startswith(f"127.0.0.1:{server.port}: its certificate is not trusted: ")
    return error


def test_a_servers_certificate_that_has_expired_is_to_be_renewed(
    server: ApiServer, handed: Handed
) -> None:
    said = shown(server, handed, server.pki.ca.server("127.0.0.1", valid=pki.EXPIRED))
    assert "issuer CN=test-ca, valid 2020-01-01 00:00Z to 2021-01-01 00:00Z" in said
    assert "renew the server's certificate" in said


def test_a_servers_certificate_of_the_future_points_to_the_clock(
    server: ApiServer, handed: Handed
) -> None:
    said = shown(server, handed, server.pki.ca.server("127.0.0.1", valid=pki.NOT_YET))
    assert "valid 2119-01-01 00:00Z to" in said
    assert "check the clocks; this node's says 20" in said


def test_a_servers_certificate_for_another_name_tells_its_names(
    server: ApiServer, handed: Handed
) -> None:
    said = shown(server, handed, server.pki.ca.server("kubernetes", "10.0.0.1"))
    assert "it must be for 127.0.0.1" in said
    assert "clusters[c].cluster.tls-server-name" in said
    assert "it is for kubernetes, 10.0.0.1" in said


def test_a_servers_certificate_of_another_authority_tells_which(
    server: ApiServer, handed: Handed
) -> None:
    said = shown(server, handed, pki.Authority("another-ca").server("127.0.0.1"))
    assert "issuer CN=another-ca" in said
    assert f"{handed.kubeconfig}: clusters[c].cluster.certificate-authority-data must hold" in said


def test_a_certificate_that_is_not_trusted_is_looked_at_once(
    server: ApiServer, handed: Handed
) -> None:
    client = handed.client()
    server.show(server.pki.ca.server("127.0.0.1", valid=pki.EXPIRED))
    assert str(rejection_of(client)) == str(rejection_of(client))
    assert server.connections == 3
    assert server.requests == []


def test_a_bundle_of_old_and_new_authorities_trusts_both_and_is_read_anew(
    server: ApiServer, handed: Handed, tmp_path: Path
) -> None:
    server.tokens["a"] = NODE_USER
    write(server, tmp_path, {"token": "a"})
    client = handed.client()
    client.get_node(NODE)
    new = pki.Authority("test-ca")
    server.show(new.server("127.0.0.1"))
    client.drop_connections()
    rejection_of(client)
    (tmp_path / "ca.crt").write_bytes(server.pki.ca.certificate + new.certificate)
    client.get_node(NODE)
    server.show(server.pki.server)
    client.drop_connections()
    client.get_node(NODE)


def test_a_server_name_of_its_own_is_verified(
    server: ApiServer, handed: Handed, tmp_path: Path
) -> None:
    server.tokens["a"] = NODE_USER
    write(server, tmp_path, {"token": "a"}, **{"tls-server-name": "elsewhere"})
    assert "it must be for elsewhere" in str(rejection_of(handed.client()))
    write(server, tmp_path, {"token": "a"}, **{"tls-server-name": "kubernetes"})
    handed.client().get_node(NODE)


# ---- refusals --------------------------------------------------------------------------------
def test_a_client_certificate_that_has_expired_is_to_be_renewed(
    server: ApiServer, handed: Handed, tmp_path: Path
) -> None:
    server.pki.ca.client(NODE_USER, valid=pki.EXPIRED).write(tmp_path, "current")
    write(server, tmp_path, {"client-certificate": "current.pem", "client-key": "current.pem"})
    error = rejection_of(handed.client())
    assert error.status == 401
    assert f"as {NODE_USER} with {handed.kubeconfig}: users[u].user.client-certificate" in str(
        error
    )
    assert f"({tmp_path}/current.pem), expired 2021-01-01 00:00Z: renew it" in str(error)


def test_a_client_of_another_cluster_is_told_so(server: ApiServer, handed: Handed) -> None:
    other = pki.Authority("another-ca")
    server.let_in(other)
    handed.kubeconfig.write_bytes(server.kubeconfig(other.client(NODE_USER)))
    error = rejection_of(handed.client())
    assert error.status == 401
    assert "valid until 2120-01-01 00:00Z: the server does not know it: is it of this cl" in str(
        error
    )


def test_a_token_that_has_expired_is_to_be_renewed_and_not_told(
    server: ApiServer, handed: Handed, tmp_path: Path
) -> None:
    claims = {"sub": "system:serviceaccount:kube-system:node", "exp": 1_600_000_000}
    middle = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    write(server, tmp_path, {"token": f"secret.{middle}.secret"})
    said = str(rejection_of(handed.client()))
    assert "as system:serviceaccount:kube-system:node" in said
    assert "expired 2020-09-13 12:26Z: renew it" in said
    assert "secret" not in said


def test_a_user_without_credentials_is_told_so(
    server: ApiServer, handed: Handed, tmp_path: Path
) -> None:
    write(server, tmp_path, {})
    assert "users[u].user: has no credentials: add client-cert" in str(
        rejection_of(handed.client())
    )


def test_what_was_refused_is_sent_once_a_call_from_then_on(
    server: ApiServer, handed: Handed, tmp_path: Path
) -> None:
    write(server, tmp_path, {"token": "a"})
    client = handed.client()
    rejection_of(client)
    assert server.count(NODE_PATH) == 2
    rejection_of(client)
    assert server.count(NODE_PATH) == 3
    server.tokens["b"] = NODE_USER
    write(server, tmp_path, {"token": "b"})
    client.get_node(NODE)


# ---- rotation --------------------------------------------------------------------------------
def test_a_connection_is_outdated_once_its_certificate_was_rotated(
    server: ApiServer, handed: Handed, tmp_path: Path
) -> None:
    server.pki.node.write(tmp_path, "current")
    user: dict[str, object] = {"client-certificate": "current.pem", "client-key": "current.pem"}
    write(server, tmp_path, user)
    client = handed.client()
    client.get_node(NODE)
    assert client.user == NODE_USER
    assert not client.is_outdated()
    # Half written: what is open goes on.
    (tmp_path / "current.pem").unlink()
    assert not client.is_outdated()
    server.pki.ca.client(NODE_USER).write(tmp_path, "current")
    assert client.is_outdated()
    client.get_node(NODE)
    assert not client.is_outdated()


def test_a_pair_of_two_halves_is_an_error_until_both_are_there(
    server: ApiServer, handed: Handed, tmp_path: Path
) -> None:
    new = server.pki.ca.client(NODE_USER)
    user: dict[str, object] = {"client-certificate": "tls.crt", "client-key": "tls.key"}
    (tmp_path / "tls.crt").write_bytes(new.certificate)
    (tmp_path / "tls.key").write_bytes(server.pki.node.key)
    write(server, tmp_path, user)
    client = handed.client()
    with pytest.raises(SourceError, match=r"client-certificate, .*client-key: not a pair in PEM"):
        client.get_node(NODE)
    (tmp_path / "tls.key").write_bytes(new.key)
    client.get_node(NODE)


def test_c8_another_token_is_used_at_once_on_the_same_connection(
    server: ApiServer, handed: Handed, tmp_path: Path
) -> None:
    server.tokens.update({"a": NODE_USER, "b": NODE_USER})
    (tmp_path / "token").write_text("a")
    write(server, tmp_path, {"tokenFile": "token"})
    client = handed.client()
    client.get_node(NODE)
    del server.tokens["a"]
    (tmp_path / "token").write_text("b")
    client.get_node(NODE)
    assert server.connections == 1
    assert not client.is_outdated()


# ---- plugins ---------------------------------------------------------------------------------
def test_a_plugins_token_is_used_and_renewed_once_when_it_is_refused(
    server: ApiServer, handed: Handed, tmp_path: Path, plugin: CredentialPlugin
) -> None:
    server.tokens["first"] = NODE_USER
    write(server, tmp_path, {"exec": plugin.section()})
    client = handed.client()
    client.get_node(NODE)
    client.get_node(NODE)
    assert plugin.runs == 1
    server.tokens.clear()
    server.tokens["second"] = NODE_USER
    plugin.gives(token="second")
    client.get_node(NODE)
    assert plugin.runs == 2
    server.tokens.clear()
    for _ in range(3):
        assert rejection_of(client).status == 401
    assert plugin.runs == 2


def test_a_plugins_certificate_is_used_and_a_new_one_renews_the_connection(
    server: ApiServer, handed: Handed, tmp_path: Path, plugin: CredentialPlugin
) -> None:
    expired = server.pki.ca.client(NODE_USER, valid=pki.EXPIRED)
    node = server.pki.node
    plugin.gives(
        clientCertificateData=expired.certificate.decode(), clientKeyData=expired.key.decode()
    )
    write(server, tmp_path, {"exec": plugin.section()})
    client = handed.client()
    assert "expired 2021-01-01" in str(rejection_of(client))
    assert plugin.runs == 2
    plugin.gives(clientCertificateData=node.certificate.decode(), clientKeyData=node.key.decode())
    # It was run twice for this server: not again at once. Another kubeconfig is another matter.
    assert rejection_of(client).status == 401
    write(server, tmp_path, {"exec": plugin.section(args=["again"])})
    client.get_node(NODE)
    assert client.user == NODE_USER
    assert not client.is_outdated()


def test_where_a_plugin_fails_after_a_refusal_both_are_told(
    server: ApiServer, handed: Handed, tmp_path: Path, plugin: CredentialPlugin
) -> None:
    write(server, tmp_path, {"exec": plugin.section()})
    server.tokens["first"] = NODE_USER
    client = handed.client()
    client.get_node(NODE)
    server.tokens.clear()
    plugin.behaves("echo the cloud is gone >&2; exit 1")
    said = str(rejection_of(client))
    assert "HTTP 401: Unauthorized: we came as nobody with what " in said
    assert "the plugin gives no other: " in said
    assert said.endswith("exit code 1: the cloud is gone")


def test_a_server_that_refuses_is_told_of_without_running_the_plugin(
    server: ApiServer, handed: Handed, tmp_path: Path, plugin: CredentialPlugin
) -> None:
    plugin.hangs()
    write(server, tmp_path, {"exec": plugin.section()})
    server.stop()
    with pytest.raises(RefusedError):
        handed.client().get_node(NODE)
    assert plugin.runs == 0


def test_a_plugin_that_gives_nothing_is_an_error_that_is_no_refusal(
    server: ApiServer, handed: Handed, tmp_path: Path, plugin: CredentialPlugin
) -> None:
    plugin.behaves("exit 1")
    write(server, tmp_path, {"exec": plugin.section()})
    client = handed.client()
    for _ in range(3):
        with pytest.raises(SourceError, match="exit code 1") as caught:
            client.get_node(NODE)
        assert not isinstance(caught.value, RefusedError)
    assert plugin.runs == 1


def test_an_open_watch_runs_no_plugin(
    server: ApiServer, handed: Handed, tmp_path: Path, plugin: CredentialPlugin
) -> None:
    server.tokens["first"] = NODE_USER
    plugin.gives(token="first", expirationTimestamp="2001-01-01T00:00:00Z")
    write(server, tmp_path, {"exec": plugin.section()})
    client = handed.client()
    version = client.list_pods(NODE, str).resource_version
    with client.watch_pods(NODE, version, lambda: 10.0) as events:
        server.store.create("pods", bound_pod("a"))
        assert next(events).type == "ADDED"
        assert not client.is_outdated()
    assert plugin.runs == 1


# ---- proxies ---------------------------------------------------------------------------------
@pytest.fixture
def proxy() -> Iterator[HttpProxy]:
    with HttpProxy() as running:
        yield running


def behind(server: ApiServer, proxy: HttpProxy, directory: Path) -> None:
    server.tokens["a"] = NODE_USER
    url = proxy.url.replace("//", "//kim:secret@")
    write(server, directory, {"token": "a"}, **{"proxy-url": url})


def test_a_proxy_of_the_kubeconfig_is_gone_through_and_is_not_the_server(
    server: ApiServer, handed: Handed, tmp_path: Path, proxy: HttpProxy
) -> None:
    behind(server, proxy, tmp_path)
    client = handed.client()
    client.get_node(NODE)
    client.get_node(NODE)
    (head,) = proxy.heads
    assert head.startswith(f"CONNECT 127.0.0.1:{server.port} HTTP/1.1\r\n")
    assert "Proxy-Authorization: Basic a2ltOnNlY3JldA==\r\n" in head
    assert client.peer is None


def test_a_server_that_refuses_the_proxy_is_silent_to_us(
    server: ApiServer, handed: Handed, tmp_path: Path, proxy: HttpProxy
) -> None:
    behind(server, proxy, tmp_path)
    server.stop()
    with pytest.raises(SilentError, match="does not reach it: HTTP 502"):
        handed.client().get_node(NODE)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "wants other credentials: see "),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "does not speak HTTP"),
        (b"HTTP/1.1 200", "no answer to CONNECT"),
        (b"x" * 20000, "no answer to CONNECT"),
    ],
)
def test_a_proxy_that_tunnels_nothing_is_named(
    server: ApiServer,
    handed: Handed,
    tmp_path: Path,
    proxy: HttpProxy,
    answer: bytes,
    why: str,
) -> None:
    behind(server, proxy, tmp_path)
    proxy.answer = answer
    with pytest.raises(SilentError) as caught:
        handed.client().get_node(NODE)
    assert why in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_proxy_that_is_down_is_no_refusal_by_the_server(
    server: ApiServer, handed: Handed, tmp_path: Path
) -> None:
    with HttpProxy() as gone:
        behind(server, gone, tmp_path)
    with pytest.raises(SilentError, match=r"through the proxy .*: connection refused"):
        handed.client().get_node(NODE)


def test_a_server_that_resets_through_a_proxy_is_no_refusal_by_it(
    server: ApiServer, handed: Handed, tmp_path: Path, proxy: HttpProxy
) -> None:
    behind(server, proxy, tmp_path)
    server.break_(Fault.RESET)
    with pytest.raises(SilentError, match="connection closed in the TLS handshake"):
        handed.client().get_node(NODE)
