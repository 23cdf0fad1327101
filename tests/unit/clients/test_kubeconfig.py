"""Kubeconfigs as kubeadm, bootkube and people write them."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from checkpointd.clients import key_files, kube_connection, kubeconfig
from checkpointd.clients.key_files import Part
from checkpointd.errors import SourceError
from tests.fakes import pki

KUBEADM = """\
apiVersion: v1
kind: Config
clusters:
- name: default-cluster
  cluster:
    certificate-authority: pki/ca.crt
    server: https://10.0.0.1:6443
contexts:
- name: default-context
  context: {cluster: default-cluster, user: default-auth}
current-context: default-context
users:
- name: default-auth
  user:
    client-certificate: /var/lib/kubelet/pki/kubelet-client-current.pem
    client-key: /var/lib/kubelet/pki/kubelet-client-current.pem
"""


def write(directory: Path, cluster: dict[str, object], user: dict[str, object]) -> Path:
    path = directory / "kubelet.conf"
    path.write_bytes(pki.kubeconfig_of(cluster, user))
    return path


EXEC = {
    "apiVersion": "client.authentication.k8s.io/v1",
    "command": "aws",
    "interactiveMode": "IfAvailable",
}
UNTRUSTED: dict[str, object] = {"server": "https://a", "insecure-skip-tls-verify": True}
TRUSTED: dict[str, object] = {"server": "https://10.0.0.1:6443", "certificate-authority": "ca.crt"}


def test_a_kubelets_own_file_names_its_server_and_its_rotating_pair(tmp_path: Path) -> None:
    path = tmp_path / "kubelet.conf"
    path.write_text(KUBEADM)
    found = kubeconfig.read_kubeconfig(path)
    assert found.server == "10.0.0.1:6443"
    assert found.verify_name == "10.0.0.1"
    assert found.ca is not None
    assert found.ca.path == tmp_path / "pki/ca.crt"
    assert found.client_key is not None
    assert found.client_key.path == Path("/var/lib/kubelet/pki/kubelet-client-current.pem")


def test_embedded_data_wins_over_a_file_and_is_shown_nowhere(tmp_path: Path) -> None:
    secret = b"-----a private key-----"
    user: dict[str, object] = {
        "client-certificate-data": base64.b64encode(b"certificate").decode(),
        "client-key": "key.pem",
        "client-key-data": base64.b64encode(secret).decode(),
    }
    found = kubeconfig.read_kubeconfig(write(tmp_path, TRUSTED, user))
    assert found.client_key is not None
    assert found.client_key.read() == secret
    assert "private" not in repr(found)
    assert base64.b64encode(secret).decode() not in repr(found)


@pytest.mark.parametrize(
    ("server", "where"),
    [
        ("https://kubernetes.example", "kubernetes.example:443"),
        ("kubernetes.example:8443/", "kubernetes.example:8443"),
        ("https://[fd00::1]:6443", "[fd00::1]:6443"),
    ],
)
def test_servers_with_and_without_port(tmp_path: Path, server: str, where: str) -> None:
    path = write(tmp_path, {**TRUSTED, "server": server}, {})
    assert kubeconfig.read_kubeconfig(path).server == where


def test_a_token_file_wins_over_a_token_and_is_read_anew(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("first\n")
    user: dict[str, object] = {"token": "old", "tokenFile": "token"}
    found = kubeconfig.read_kubeconfig(write(tmp_path, TRUSTED, user))
    assert found.read_token() == "first"
    (tmp_path / "token").write_text("second\n")
    assert found.read_token() == "second"


def test_where_the_token_file_cannot_be_read_the_token_counts(tmp_path: Path) -> None:
    user: dict[str, object] = {"token": "given", "tokenFile": "absent"}
    assert kubeconfig.read_kubeconfig(write(tmp_path, TRUSTED, user)).read_token() == "given"


def test_other_credentials_win_over_a_plugin_and_that_is_told(tmp_path: Path) -> None:
    found = kubeconfig.read_kubeconfig(write(tmp_path, TRUSTED, {"token": "a", "exec": EXEC}))
    assert found.plugin is None
    assert found.read_token() == "a"
    assert "users[u].user.exec: not used" in found.warnings[0]


@pytest.mark.parametrize(
    ("command", "found"), [("./p", "p"), ("bin/p", "bin/p"), ("/opt/p", "/opt/p"), ("aws", "aws")]
)
def test_a_plugin_with_a_relative_path_lies_beside_the_kubeconfig(
    tmp_path: Path, command: str, found: str
) -> None:
    path = write(tmp_path, TRUSTED, {"exec": {**EXEC, "command": command}})
    plugin = kubeconfig.read_kubeconfig(path).plugin
    assert plugin is not None
    assert plugin.spec.command == (found if command == "aws" else str(tmp_path / found))


def test_a_pair_in_one_file_that_is_turned_is_of_one_moment(tmp_path: Path) -> None:
    certificates = pki.shared()
    files = [certificates.node.write(tmp_path, "a"), certificates.admin.write(tmp_path, "b")]
    current = tmp_path / "kubelet-client-current.pem"
    current.symlink_to(files[0])
    user: dict[str, object] = {"client-certificate": current.name, "client-key": current.name}
    found = kubeconfig.read_kubeconfig(write(tmp_path, UNTRUSTED, user))
    assert found.read().pair == files[0].read_bytes()
    (tmp_path / "new").symlink_to(files[1])
    (tmp_path / "new").replace(current)
    assert found.read().pair == files[1].read_bytes()


def test_a_pair_in_two_files_that_change_meanwhile_is_read_again(tmp_path: Path) -> None:
    node, admin = pki.shared().node, pki.shared().admin
    (tmp_path / "tls.key").write_bytes(node.key)

    (tmp_path / "tls.crt").write_bytes(node.certificate)

    class RotatedMeanwhile(Part):
        """Be a certificate that is replaced, with its key, right after it was first read."""

        def read(self) -> bytes:
            content = Part.read(self)
            (tmp_path / "tls.crt").write_bytes(admin.certificate)
            (tmp_path / "tls.key").write_bytes(admin.key)
            return content

    pair = key_files.read_pair(
        RotatedMeanwhile(key="c", path=tmp_path / "tls.crt"),
        Part(key="k", path=tmp_path / "tls.key"),
    )
    assert pair == admin.certificate + b"\n" + admin.key


def test_a_token_with_a_line_break_is_refused_without_being_told(tmp_path: Path) -> None:
    found = kubeconfig.read_kubeconfig(write(tmp_path, TRUSTED, {"token": "hidden\r\nX-Other: 1"}))
    with pytest.raises(SourceError) as caught:
        found.read_token()
    assert "users[u].user.token" in str(caught.value)
    assert "hidden" not in str(caught.value)


def test_a_proxys_password_is_shown_nowhere(tmp_path: Path) -> None:
    cluster = {**TRUSTED, "proxy-url": "http://kim:hid%64en@proxy.example:3128"}
    proxy = kubeconfig.read_kubeconfig(write(tmp_path, cluster, {})).proxy
    assert proxy is not None
    assert str(proxy) == "the proxy proxy.example:3128"
    assert base64.b64decode(proxy.authorization.removeprefix("Basic ")) == b"kim:hidden"
    assert "hid" not in repr(proxy)
    assert proxy.authorization not in repr(proxy)


def test_verification_that_is_switched_off_is_reported(tmp_path: Path) -> None:
    cluster: dict[str, object] = {"server": "https://a", "insecure-skip-tls-verify": True}
    found = kubeconfig.read_kubeconfig(write(tmp_path, cluster, {}))
    assert found.insecure
    assert "insecure-skip-tls-verify" in found.warnings[0]


@pytest.mark.parametrize(
    ("cluster", "user", "key"),
    [
        ({"server": "http://a", "certificate-authority": "ca"}, {}, "clusters[c].cluster.server"),
        ({"server": "https://u:p@a"}, {}, "clusters[c].cluster.server"),
        ({"server": "https://a:0x1"}, {}, "clusters[c].cluster.server"),
        ({"certificate-authority": "ca"}, {}, "clusters[c].cluster.server"),
        ({"server": 6443}, {}, "clusters[c].cluster.server"),
        ({"server": "https://a"}, {}, "clusters[c].cluster.certificate-authority"),
        ({**TRUSTED, "certificate-authority-data": "?"}, {}, "certificate-authority-data"),
        ({**TRUSTED, "proxy-url": "socks5://p:1"}, {}, "speaks socks5 is not supported"),
        ({**TRUSTED, "proxy-url": "https://u:hidden@p"}, {}, "clusters[c].cluster.proxy-url"),
        ({**TRUSTED, "proxy-url": "http://u:hidden@"}, {}, "clusters[c].cluster.proxy-url"),
        ({**TRUSTED, "proxy-url": "http://p:x"}, {}, "clusters[c].cluster.proxy-url"),
        (TRUSTED, {"client-certificate": "a"}, "users[u].user.client-key"),
        (TRUSTED, {"client-key": "a"}, "users[u].user.client-certificate"),
        (TRUSTED, {"exec": {"command": "aws"}}, "users[u].user.exec.apiVersion"),
        (TRUSTED, {"exec": {**EXEC, "apiVersion": f"{EXEC['apiVersion']}alpha1"}}, "apiVersion"),
        (TRUSTED, {"exec": {**EXEC, "command": ""}}, "users[u].user.exec.command"),
        (TRUSTED, {"exec": {**EXEC, "interactiveMode": ""}}, "users[u].user.exec.interactiveMode"),
        (TRUSTED, {"exec": {**EXEC, "interactiveMode": "Always"}}, "has no terminal"),
        (
            TRUSTED,
            {"exec": {**EXEC, "interactiveMode": "hm"}},
            "users[u].user.exec.interactiveMode",
        ),
        (TRUSTED, {"exec": {**EXEC, "args": ["a", 1]}}, "users[u].user.exec.args[1]"),
        (TRUSTED, {"exec": {**EXEC, "args": "hidden"}}, "users[u].user.exec.args"),
        (TRUSTED, {"exec": {**EXEC, "env": [{"value": "hidden"}]}}, "users[u].user.exec.env: name"),
        (TRUSTED, {"exec": {**EXEC, "env": [{"name": "A=", "value": "x"}]}}, "user.exec.env"),
        (TRUSTED, {"exec": [], "token": 1}, "users[u].user.token"),
        (TRUSTED, {"exec": "aws"}, "users[u].user.exec"),
        (TRUSTED, {"auth-provider": {"name": "gcp"}}, "users[u].user.auth-provider"),
        (TRUSTED, {"username": "a", "password": "hidden"}, "users[u].user.username"),
        (TRUSTED, {"password": "hidden"}, "users[u].user.password"),
        (TRUSTED, {"as": "hidden", "token": "a"}, "users[u].user.as"),
        (TRUSTED, {"as-groups": ["hidden"], "token": "a"}, "users[u].user.as-groups"),
        (TRUSTED, {"as-uid": "hidden", "token": "a"}, "users[u].user.as-uid"),
        (TRUSTED, {"as-user-extra": {"a": ["hidden"]}}, "users[u].user.as-user-extra"),
    ],
)
def test_what_cannot_be_used_is_named_by_file_and_key(
    tmp_path: Path, cluster: dict[str, object], user: dict[str, object], key: str
) -> None:
    path = write(tmp_path, cluster, user)
    with pytest.raises(SourceError) as caught:
        kubeconfig.read_kubeconfig(path)
    assert f"{path}: " in str(caught.value)
    assert key in str(caught.value)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "kubeconfig: expected an object"),
        ("{", "neither JSON nor YAML"),
        ("- a", "kubeconfig: expected an object"),
        ("a: [", "neither JSON nor YAML in line"),
        ("a: b: hidden", "neither JSON nor YAML in line 1"),
        ("current-context: nowhere", 'contexts: no entry is named "nowhere"'),
        ("kind: Config", "current-context: missing: contexts is empty"),
        ("contexts: [{name: a}, {name: b}]", 'missing: set it to one of "a", "b"'),
        ("current-context: c\ncontexts: [{name: a}]", 'named "c": set it to one of "a"'),
        ("contexts: [{name: a}]", "contexts[a].context.cluster: missing"),
        ("contexts: [{name: a, context: {cluster: c}}]", "contexts[a].context.user: missing"),
        (
            "contexts: [{name: a, context: {cluster: c, user: u}}]\nclusters: [{name: d}]",
            'clusters: no entry is named "c": set it to one of "d"',
        ),
        (
            (
                "contexts: [{name: a, context: {cluster: c, user: u}}]\n"
                "clusters: [{name: c}, {name: c}]"
            ),
            'clusters: two entries are named "c"',
        ),
    ],
)
def test_a_file_that_is_none_is_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "kubelet.conf"
    path.write_text(content)
    with pytest.raises(SourceError) as caught:
        kubeconfig.read_kubeconfig(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert "hidden" not in str(caught.value)


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"absent\.conf: No such file"):
        kubeconfig.Kubeconfig(tmp_path / "absent.conf").read()


def test_a_kubeconfig_is_read_anew_when_it_changes(tmp_path: Path) -> None:
    path = write(tmp_path, TRUSTED, {})
    reader = kubeconfig.Kubeconfig(path)
    first = reader.read()
    assert reader.read() is first
    write(tmp_path, {**TRUSTED, "server": "https://10.0.0.2:6443"}, {})
    assert reader.read().host == "10.0.0.2"


def test_a_pair_in_memory_needs_no_file(tmp_path: Path) -> None:
    certificates = pki.shared()
    path = tmp_path / "kubelet.conf"
    path.write_bytes(pki.kubeconfig("https://a", certificates.ca.certificate, certificates.node))
    kube_connection.make_context(kubeconfig.read_kubeconfig(path))
    assert list(tmp_path.iterdir()) == [path]


def test_a_pair_that_is_none_is_named_by_its_keys(tmp_path: Path) -> None:
    certificates = pki.shared()
    path = tmp_path / "kubelet.conf"
    wrong = pki.Pair(certificates.node.certificate, certificates.admin.key)
    path.write_bytes(pki.kubeconfig("https://a", certificates.ca.certificate, wrong))
    with pytest.raises(SourceError, match=r"users\[u\]\.user\.client-key-data: not a pair"):
        kube_connection.make_context(kubeconfig.read_kubeconfig(path))
