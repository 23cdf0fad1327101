"""Plugins as cloud providers have them, and those that hang, fail, chatter or lie."""

from __future__ import annotations

import base64
import json
import threading
from pathlib import Path

import pytest

from checkpointd.clients import exec_plugin, kubeconfig
from checkpointd.clients.exec_plugin import Login, Plugin, Spec
from checkpointd.errors import SourceError
from tests.fakes import pki
from tests.fakes.credential_plugin import VERSION, CredentialPlugin, lives
from tests.fakes.waiting import wait_for

PAST = "2001-01-01T00:00:00Z"
FUTURE = "2120-01-01T00:00:00Z"
CLUSTER: dict[str, object] = {"server": "https://10.0.0.1:6443", "certificate-authority": "ca.crt"}


@pytest.fixture
def fake(tmp_path: Path) -> CredentialPlugin:
    return CredentialPlugin(tmp_path)


def plugin_of(
    directory: Path, section: dict[str, object], cluster: dict[str, object] | None = None
) -> Plugin:
    """Read a kubeconfig with this exec section and return its plugin."""
    path = directory / "kubelet.conf"
    path.write_bytes(pki.kubeconfig_of(cluster or CLUSTER, {"exec": section}))
    plugin = kubeconfig.read_kubeconfig(path).plugin
    assert plugin is not None
    return plugin


def failure_of(plugin: Plugin) -> str:
    with pytest.raises(SourceError) as caught:
        plugin.login()
    return str(caught.value)


def test_a_token_is_kept_until_it_ends(tmp_path: Path, fake: CredentialPlugin) -> None:
    fake.gives(token="a-token", expirationTimestamp=FUTURE)
    plugin = plugin_of(tmp_path, fake.section())
    assert plugin.login().token == "a-token"
    assert plugin.login() is plugin.login()
    assert fake.runs == 1


def test_without_an_end_a_token_is_kept_until_it_is_refused(
    tmp_path: Path, fake: CredentialPlugin
) -> None:
    plugin = plugin_of(tmp_path, fake.section())
    first = plugin.login()
    fake.gives(token="second")
    assert plugin.login() is first
    renewed = plugin.renew(first)
    assert renewed is not None
    assert renewed.token == "second"
    assert plugin.login() is renewed


def test_a_token_that_ends_before_it_comes_is_used_all_the_same(
    tmp_path: Path, fake: CredentialPlugin
) -> None:
    # One of the two clocks is wrong; client-go once ran the plugin for each use.
    fake.gives(token="a", expirationTimestamp=PAST)
    plugin = plugin_of(tmp_path, fake.section())
    assert plugin.login() is plugin.login()
    assert fake.runs == 1


def test_a_refusal_runs_it_once_more_and_not_again_at_once(
    tmp_path: Path, fake: CredentialPlugin
) -> None:
    plugin = plugin_of(tmp_path, fake.section())
    first = plugin.login()
    second = plugin.renew(first)
    assert second is not None
    assert plugin.renew(second) is None
    assert fake.runs == 2


def test_what_another_thread_has_renewed_is_not_renewed_again(
    tmp_path: Path, fake: CredentialPlugin
) -> None:
    plugin = plugin_of(tmp_path, fake.section())
    first = plugin.login()
    second = plugin.renew(first)
    assert plugin.renew(first) is second
    assert fake.runs == 2


def test_a_pair_comes_as_pem(tmp_path: Path, fake: CredentialPlugin) -> None:
    node = pki.shared().node
    fake.gives(
        clientCertificateData=node.certificate.decode(), clientKeyData=node.key.decode(),
        expirationTimestamp="2120-01-01T01:00:00.123456789+01:00",
    )  # fmt: skip
    login = plugin_of(tmp_path, fake.section()).login()
    assert node.certificate in login.pair
    assert node.key in login.pair
    assert login.expires == 4733510400.0
    assert "PRIVATE" not in repr(login)


def test_h4_it_is_told_of_itself_and_has_nothing_of_our_environment(
    tmp_path: Path, fake: CredentialPlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/systemd/notify")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    section = fake.section(
        args=["get-token", "--cluster", "a b"], env=[{"name": "REGION", "value": "eu"}]
    )
    plugin_of(tmp_path, section).login()
    given = fake.environment
    shell_adds = {"PWD", "OLDPWD", "SHLVL", "_"}
    assert given.keys() - shell_adds == {"PATH", "HOME", "LANG", "REGION", "KUBERNETES_EXEC_INFO"}
    assert given["REGION"] == "eu"
    assert json.loads(given["KUBERNETES_EXEC_INFO"]) == {
        "kind": "ExecCredential", "apiVersion": VERSION, "spec": {"interactive": False},
    }  # fmt: skip
    assert fake.arguments == ["get-token", "--cluster", "a b"]


def test_it_is_told_of_the_cluster_if_it_asks(tmp_path: Path, fake: CredentialPlugin) -> None:
    (tmp_path / "ca.crt").write_bytes(b"certificates")
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}}
    cluster = {**CLUSTER, "tls-server-name": "kubernetes", "extensions": [extension]}
    plugin_of(tmp_path, fake.section(provideClusterInfo=True), cluster).login()
    told = json.loads(fake.environment["KUBERNETES_EXEC_INFO"])["spec"]["cluster"]
    assert told == {
        "server": "https://10.0.0.1:6443",
        "tls-server-name": "kubernetes",
        "certificate-authority-data": base64.b64encode(b"certificates").decode(),
        "config": {"audience": "a"},
    }


def test_a_plugin_of_the_version_before_is_run_as_that(
    tmp_path: Path, fake: CredentialPlugin
) -> None:
    beta = "client.authentication.k8s.io/v1beta1"
    fake.gives(version=beta, token="a")
    section = fake.section(apiVersion=beta)
    del section["interactiveMode"]
    assert plugin_of(tmp_path, section).login().token == "a"


def test_one_that_hangs_is_killed_in_time(tmp_path: Path, fake: CredentialPlugin) -> None:
    fake.hangs()
    plugin = Plugin(plugin_of(tmp_path, fake.section()).spec, timeout=0.5)
    assert "killed: not done in 0.5 s" in failure_of(plugin)
    wait_for("it has ended", lambda: not any(map(lives, fake.pids)))


def test_one_that_hangs_ends_with_the_daemon_and_so_do_its_children(
    tmp_path: Path, fake: CredentialPlugin
) -> None:
    fake.hangs()
    plugin = plugin_of(tmp_path, fake.section())
    said: list[str] = []
    thread = threading.Thread(target=lambda: said.append(failure_of(plugin)))
    thread.start()
    wait_for("it hangs", lambda: fake.is_hanging)
    plugin.stop()
    thread.join(10)
    assert "killed: checkpointd stops" in said[0]
    wait_for("all have ended", lambda: not any(map(lives, (*fake.pids, *fake.children))))


def test_a_child_that_holds_its_output_open_is_not_waited_for(
    tmp_path: Path, fake: CredentialPlugin
) -> None:
    fake.behaves('cat "$here/answer"; sleep 1000 & echo $! > "$here/child"')
    assert plugin_of(tmp_path, fake.section()).login().token == "first"
    child = int((fake.directory / "child").read_text())
    wait_for("it has ended", lambda: not lives(child))


def test_one_that_fails_is_named_with_its_last_words_and_no_secret(
    tmp_path: Path, fake: CredentialPlugin
) -> None:
    fake.behaves(
        "echo 'denied for Kim with hunter22 and' >&2; printf '\\033[1m%s\\n' x >&2; exit 3"
    )
    section = fake.section(args=["--secret", "hunter22"], env=[{"name": "P", "value": "Kim"}])
    why = failure_of(plugin_of(tmp_path, section))
    assert f"{tmp_path}/kubelet.conf: users[u].user.exec.command" in why
    assert "exit code 3: denied for Kim with […] and [1m" in why
    assert why.isprintable()


def test_one_that_fails_is_not_run_again_at_once(tmp_path: Path, fake: CredentialPlugin) -> None:
    fake.behaves("exit 1")
    plugin = plugin_of(tmp_path, fake.section())
    assert failure_of(plugin) == failure_of(plugin)
    assert fake.runs == 1


def test_where_it_fails_what_it_gave_before_is_used(tmp_path: Path, fake: CredentialPlugin) -> None:
    plugin = plugin_of(tmp_path, fake.section())
    first = plugin.login()
    fake.behaves("exit 1")
    with pytest.raises(SourceError, match="exit code 1"):
        plugin.renew(first)
    assert plugin.login() is first
    assert "exit code 1" in plugin.failure


@pytest.mark.parametrize(
    ("output", "why"),
    [
        ("", "expected an object"),
        ("{secret", "not JSON"),
        ("secret: [", "neither JSON nor YAML"),
        ('{"kind": "Secret", "status": {"token": "secret"}}', "kind"),
        (f'{{"kind": "ExecCredential", "apiVersion": "{VERSION}alpha1"}}', "apiVersion"),
        (f'{{"kind": "ExecCredential", "apiVersion": "{VERSION}"}}', "neither a token"),
    ],
)
def test_an_answer_that_is_none_is_refused(
    tmp_path: Path, fake: CredentialPlugin, output: str, why: str
) -> None:
    fake.writes(output)
    said = failure_of(plugin_of(tmp_path, fake.section()))
    assert why in said
    assert "secret" not in said


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ({"token": 7}, "token"),
        ({"token": "two words"}, "status.token"),
        ({"clientCertificateData": "secret"}, "alone"),
        ({"clientKeyData": "secret"}, "alone"),
        ({"token": "secret", "expirationTimestamp": "soon"}, "expirationTimestamp"),
        ({"token": "secret", "expirationTimestamp": "2030-01-01T00:00:00"}, "time zone"),
    ],
)
def test_a_status_that_is_none_is_refused(status: dict[str, object], why: str) -> None:
    spec = Spec(key="k", api_version=VERSION, command="c")
    answer = {"kind": "ExecCredential", "apiVersion": VERSION, "status": status}
    with pytest.raises(SourceError) as caught:
        exec_plugin.parse_answer(spec, json.dumps(answer).encode())
    assert why in str(caught.value)
    assert "secret" not in str(caught.value)


def test_an_answer_in_yaml_counts_as_with_client_go() -> None:
    spec = Spec(key="k", api_version=VERSION, command="c")
    answer = f"kind: ExecCredential\napiVersion: {VERSION}\nstatus: {{token: a}}\n"
    assert exec_plugin.parse_answer(spec, answer.encode()) == Login(token="a")


def test_one_that_writes_without_end_is_killed(tmp_path: Path, fake: CredentialPlugin) -> None:
    fake.behaves("exec cat /dev/zero")
    assert "wrote more than" in failure_of(plugin_of(tmp_path, fake.section()))


def test_one_that_complains_without_end_still_answers(
    tmp_path: Path, fake: CredentialPlugin
) -> None:
    fake.behaves('head -c 3000000 /dev/zero >&2; cat "$here/answer"')
    assert plugin_of(tmp_path, fake.section()).login().token == "first"


def test_one_that_is_not_there_is_named_with_its_hint(
    tmp_path: Path, fake: CredentialPlugin
) -> None:
    why = failure_of(plugin_of(tmp_path, fake.section(command="./bin/absent")))
    assert "bin/absent: cannot be started: No such file" in why
    section = fake.section(command="no-such-plugin", installHint="apt install\nit")
    assert "not found in /usr/local/sbin" in failure_of(plugin_of(tmp_path, section))
    assert failure_of(plugin_of(tmp_path, section)).endswith(": apt install it")


def test_one_that_is_killed_says_by_what(tmp_path: Path, fake: CredentialPlugin) -> None:
    fake.behaves("kill -9 $$")
    assert "killed by signal 9, and no word" in failure_of(plugin_of(tmp_path, fake.section()))


def test_it_is_kept_with_what_it_gave_as_long_as_it_is_the_same(
    tmp_path: Path, fake: CredentialPlugin
) -> None:
    path = tmp_path / "kubelet.conf"
    (tmp_path / "ca.crt").write_bytes(b"certificates")
    reader = kubeconfig.Kubeconfig(path)
    path.write_bytes(pki.kubeconfig_of(CLUSTER, {"exec": fake.section()}))
    assert reader.read().read().token == "first"
    path.write_bytes(
        pki.kubeconfig_of({**CLUSTER, "server": "https://b"}, {"exec": fake.section()})
    )
    assert reader.read().host == "b"
    assert reader.read().read().token == "first"
    assert fake.runs == 1
    path.write_bytes(pki.kubeconfig_of(CLUSTER, {"exec": fake.section(args=["other"])}))
    assert reader.read().read().token == "first"
    assert fake.runs == 2
