"""Whom an API server knows and what it shows; the same suite for the fake and for a real one.

A real one is named by CHECKPOINTD_API_KUBECONFIG: an administrator's, with embedded data.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from checkpointd import json_fields
from checkpointd.clients import kubeconfig
from checkpointd.clients.credentials import Credentials
from checkpointd.clients.kube import KubeClient
from checkpointd.clients.kubeconfig import Kubeconfig
from checkpointd.errors import RejectedError
from checkpointd.json_fields import Json
from tests.fakes import pki
from tests.fakes.api_server import ApiServer
from tests.fakes.credential_plugin import CredentialPlugin

REAL = os.environ.get("CHECKPOINTD_API_KUBECONFIG", "") or os.environ.get(
    "CHECKPOINTD_TEST_ADMIN", ""
)
ADMIN_PATH = "/api/v1/namespaces/kube-system"


@dataclass
class Endpoint:
    """Hold an API server, an administrator's credentials, and a directory for kubeconfigs."""

    admin: Credentials
    directory: Path
    strangers: pki.Authority
    clients: list[KubeClient] = field(default_factory=list[KubeClient])

    def client(
        self, user: dict[str, object] | None, *, ca: bytes = b"", server_name: str = ""
    ) -> KubeClient:
        """Return the client of a kubeconfig with this user, None: the administrator's pair."""
        secrets = self.admin.read()
        (self.directory / "ca.crt").write_bytes(ca or secrets.ca)
        if user is None:
            (self.directory / "admin.pem").write_bytes(secrets.pair)
            user = {"client-certificate": "admin.pem", "client-key": "admin.pem"}
        cluster: dict[str, object] = {
            "server": f"https://{self.admin.server}",
            "certificate-authority": "ca.crt",
            "tls-server-name": server_name,
        }
        path = self.directory / "kubeconfig"
        path.write_bytes(pki.kubeconfig_of(cluster, user))
        client = KubeClient(Kubeconfig(path).read)
        self.clients.append(client)
        return client

    def write_pair(self, pair: pki.Pair) -> dict[str, object]:
        """Write a pair and return the user of a kubeconfig that has it."""
        pair.write(self.directory, "client")
        return {"client-certificate": "client.pem", "client-key": "client.pem"}


@pytest.fixture(params=["fake", "real"])
def endpoint(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Endpoint]:
    strangers = pki.Authority("strangers")
    if request.param == "real":
        if not REAL:
            pytest.skip("no real API server is named by CHECKPOINTD_API_KUBECONFIG")
        made = Endpoint(kubeconfig.read_kubeconfig(Path(REAL)), tmp_path, strangers)
        yield made
        for client in made.clients:
            client.drop_connections()
        return
    with ApiServer(pki.shared()) as server:
        # A real one lets everybody through the handshake.
        server.let_in(strangers)
        path = tmp_path / "admin.conf"
        path.write_bytes(server.kubeconfig(server.pki.admin))
        made = Endpoint(kubeconfig.read_kubeconfig(path), tmp_path, strangers)
        yield made
        for client in made.clients:
            client.drop_connections()


def ask(client: KubeClient) -> Json:
    return client.get(ADMIN_PATH)


def rejection_of(client: KubeClient) -> RejectedError:
    with pytest.raises(RejectedError) as caught:
        ask(client)
    assert "\n" not in str(caught.value)
    return caught.value


def test_a_pair_that_the_cluster_signed_is_known(endpoint: Endpoint) -> None:
    found = ask(endpoint.client(None))
    assert json_fields.text(found, "metadata", "name") == "kube-system"


def test_a_token_that_nobody_gave_out_is_401(endpoint: Endpoint) -> None:
    error = rejection_of(endpoint.client({"token": "nobody-knows-this"}))
    assert error.status == 401
    assert "we came as nobody with " in str(error)
    assert "users[u].user.token: the server does not know it" in str(error)


def test_a_certificate_of_another_authority_is_401_and_not_a_failed_handshake(
    endpoint: Endpoint,
) -> None:
    user = endpoint.write_pair(endpoint.strangers.client("system:node:a"))
    error = rejection_of(endpoint.client(user))
    assert error.status == 401
    assert "we came as system:node:a with " in str(error)


def test_a_certificate_that_has_expired_is_401_and_to_be_renewed(endpoint: Endpoint) -> None:
    user = endpoint.write_pair(endpoint.strangers.client("system:node:a", valid=pki.EXPIRED))
    error = rejection_of(endpoint.client(user))
    assert error.status == 401
    assert "client.pem), expired 2021-01-01 00:00Z: renew it" in str(error)


def test_nobody_is_let_in_without_credentials(endpoint: Endpoint) -> None:
    # 403 where anonymous requests are allowed (--anonymous-auth).
    assert rejection_of(endpoint.client({})).status in (401, 403)


def test_its_certificate_is_verified_by_name_and_says_whom_it_is_for(endpoint: Endpoint) -> None:
    client = endpoint.client(None, server_name="elsewhere.example")
    error = str(rejection_of(client))
    assert "it must be for elsewhere.example" in error
    assert "clusters[c].cluster.tls-server-name must name another; it is for " in error
    assert "issuer CN=" in error
    ask(endpoint.client(None, server_name="kubernetes"))


def test_its_certificate_is_verified_by_the_authority_of_the_kubeconfig(endpoint: Endpoint) -> None:
    error = str(rejection_of(endpoint.client(None, ca=endpoint.strangers.certificate)))
    assert "clusters[c].cluster.certificate-authority must hold its issuer's" in error
    both = endpoint.strangers.certificate + endpoint.admin.read().ca
    ask(endpoint.client(None, ca=both))


def test_a_plugins_pair_is_known(endpoint: Endpoint) -> None:
    plugin = CredentialPlugin(endpoint.directory)
    pair = endpoint.admin.read().pair.decode()
    at = pair.index("-----END CERTIFICATE-----") + len("-----END CERTIFICATE-----\n")
    plugin.gives(clientCertificateData=pair[:at], clientKeyData=pair[at:])
    section = plugin.section(provideClusterInfo=True)
    client = endpoint.client({"exec": section})
    ask(client)
    ask(client)
    assert plugin.runs == 1
    told = json.loads(plugin.environment["KUBERNETES_EXEC_INFO"])["spec"]["cluster"]
    assert told["server"] == f"https://{endpoint.admin.server}"


def test_a_plugins_token_that_is_refused_is_asked_for_once_more(endpoint: Endpoint) -> None:
    plugin = CredentialPlugin(endpoint.directory)
    client = endpoint.client({"exec": plugin.section()})
    for _ in range(3):
        assert rejection_of(client).status == 401
    assert plugin.runs == 2
