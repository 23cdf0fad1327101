"""Let the daemon's credentials rotate, end and hang: what runs goes on, and it says why."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes import pki
from tests.fakes.api_faults import Fault
from tests.fakes.credential_plugin import CredentialPlugin, lives
from tests.fakes.machine.processes import Processes
from tests.fakes.node import NAME, Node
from tests.fakes.waiting import NotYetError, holds_for, wait_for
from tests.integration import scenes

pytestmark = pytest.mark.integration

USER = f"system:node:{NAME}"


class Identity:
    """Be the node's kubeconfig, with its client certificate in a file that is turned, as a
    kubelet's is."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.directory = node.layout.pki
        self.current = self.directory / "kubelet-client-current.pem"
        self._turns = 0
        ca = {"certificate-authority": str(self.directory / "ca.crt")}
        self.cluster = {"server": f"https://127.0.0.1:{node.api_port}", **ca}

    def use_pair(self, pair: pki.Pair) -> None:
        """Turn the link to another pair, and name it in the kubeconfig."""
        self._turns += 1
        file = pair.write(self.directory, f"kubelet-client-{self._turns}")
        fresh = self.directory / "fresh"
        fresh.symlink_to(file)
        fresh.replace(self.current)
        path = str(self.current)
        self._write({"client-certificate": path, "client-key": path})

    def use_plugin(self, plugin: CredentialPlugin) -> None:
        """Name an exec plugin in the kubeconfig."""
        self._write({"exec": plugin.section(command=str(plugin.path))})

    def _write(self, user: dict[str, object]) -> None:
        content = pki.kubeconfig_of(self.cluster, user)
        if self.node.layout.kubeconfig.read_bytes() != content:
            self.node.layout.kubeconfig.write_bytes(content)


def wait_for_reason(node: Node, words: str) -> None:
    """Wait until the API server is unknown for this reason."""

    def is_told() -> bool:
        api = node.status()["api"]
        if api["state"] != "unknown" or words not in str(api):
            raise NotYetError(str(api))
        return True

    wait_for(f"the status says {words}", is_told)


def client_of(node: Node, user: str, valid: pki.Validity = pki.ALWAYS) -> pki.Pair:
    return node.api_server.pki.ca.client(user, ["system:nodes"], valid=valid)


def test_a_certificate_that_rotates_and_ends_stops_nothing_and_starts_nothing(
    processes: Processes,
) -> None:
    with Node(processes) as node:
        identity = Identity(node)
        identity.use_pair(client_of(node, USER))
        scenes.start(node)
        uid = scenes.store_pod(node, "web", scenes.exclusive(node.free_port()))["metadata"]["uid"]
        identity.use_pair(client_of(node, USER))
        node.api_server.end_watches()
        scenes.create_pod(node, "after", scenes.shareable(node.free_port()))
        scenes.wait_until_stored(node, "pod.after")
        scenes.wait_for_api(node, "trusted")
        identity.use_pair(client_of(node, USER, pki.EXPIRED))
        node.api_server.end_watches()
        wait_for_reason(node, "kubelet-client-current.pem), expired 2021-01-01 00:00Z: renew it")
        holds_for("the pod runs and nothing starts", lambda: _is_calm(node, uid), 2)
        identity.use_pair(client_of(node, USER))
        scenes.wait_for_api(node, "trusted")
        assert not node.manifests()
        assert "PRIVATE KEY" not in (node.layout.logs / "checkpointd.log").read_text()


def test_401_is_an_api_server_that_does_not_answer_and_its_pods_are_kept_alive(
    processes: Processes,
) -> None:
    with Node(processes) as node:
        identity = Identity(node)
        identity.use_pair(client_of(node, USER))
        scenes.start(node)
        port = node.free_port()
        uid = scenes.store_pod(node, "web", scenes.exclusive(port))["metadata"]["uid"]
        identity.use_pair(client_of(node, USER, pki.EXPIRED))
        node.api_server.end_watches()
        wait_for_reason(node, "HTTP 401: Unauthorized")
        # The kubelet's API source is gone too: only then does it forget the pod.
        node.api_server.break_(Fault.UNAUTHORIZED, "/api/v1/")
        scenes.restart_kubelet_offline(node)
        scenes.kill_program(node, uid)
        wait_for("the copy serves", scenes.serves(port))
        identity.use_pair(client_of(node, USER))
        node.api_server.repair()
        wait_for("the parent is back, alone", lambda: not node.manifests())
        wait_for("it serves", scenes.serves(port))


def test_a_kubeconfig_of_another_node_is_an_alarm(processes: Processes) -> None:
    with Node(processes) as node:
        identity = Identity(node)
        identity.use_pair(client_of(node, USER))
        scenes.start(node)
        uid = scenes.store_pod(node, "web", scenes.exclusive(node.free_port()))["metadata"]["uid"]
        identity.use_pair(client_of(node, "system:node:other"))
        node.api_server.end_watches()
        wait_for_reason(node, 'User "system:node:other" cannot get resource "nodes"')
        assert any(
            "speaks for other, but this node is node-1" in one for one in scenes.alarms(node)
        )
        holds_for("the pod runs and nothing starts", lambda: _is_calm(node, uid), 1)
        identity.use_pair(client_of(node, USER))
        wait_for("the alarm is over", lambda: not scenes.alarms(node))


def test_a_plugin_that_hangs_holds_up_nothing_and_ends_with_the_daemon(
    processes: Processes, tmp_path: Path
) -> None:
    with Node(processes) as node:
        identity, plugin = Identity(node), CredentialPlugin(tmp_path)
        node.api_server.tokens["first"] = USER
        identity.use_plugin(plugin)
        scenes.start(node)
        uid = scenes.store_pod(node, "web", scenes.exclusive(node.free_port()))["metadata"]["uid"]
        assert plugin.runs == 1
        plugin.hangs()
        node.api_server.tokens.clear()
        node.api_server.end_watches()
        wait_for("it hangs", lambda: plugin.is_hanging)
        node.override("node", "hold")
        wait_for("an order counts meanwhile", lambda: "hold" in str(node.status()))
        assert _is_calm(node, uid)
        assert node.daemon is not None
        assert node.daemon.stop() == 0
        wait_for(
            "no process is left", lambda: not any(map(lives, (*plugin.pids, *plugin.children)))
        )
        plugin.gives(token="second")
        node.api_server.tokens["second"] = USER
        node.override("node", "")
        node.start_daemon()
        scenes.wait_for_api(node, "trusted")
        assert _is_calm(node, uid)


def _is_calm(node: Node, uid: str) -> bool:
    return scenes.runs(node, uid) and not node.manifests()
