"""`doctor` on the embedded node: in good health, under outages, and never beyond its time."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from typing import cast

import pytest

from checkpointd.cli.examine.finding import Level
from checkpointd.clients import yaml_text
from checkpointd.json_fields import Json
from tests.fakes.api_faults import Fault
from tests.fakes.machine.control import Fields
from tests.fakes.machine.processes import Processes
from tests.fakes.node import Node
from tests.fakes.waiting import wait_for

pytestmark = pytest.mark.integration
SHORT = 3.0


@pytest.fixture(scope="module")
def node(processes: Processes) -> Iterator[Node]:
    """Return a node with its daemon in contact; tests leave it as they found it."""
    with Node(processes, discovery=True) as node:
        node.api_server.start()
        node.layout.state.chmod(0o700)
        node.boot()
        wait_for("contact", lambda: node.status()["api"]["state"] == "trusted")
        yield node


class Report:
    """Hold what one run of doctor printed."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.code = done.returncode
        self.fields = cast("Fields", json.loads(done.stdout)) if done.stdout else {}

    def of(self, section: str) -> dict[str, tuple[str, str]]:
        """Return subject → (level, all that is said) of a section."""
        (found,) = (one for one in self.fields["sections"] if one["name"] == section)
        return {
            one["subject"]: (one["level"], f"{one['says']}; {one['costs']}; {one['remedy']}")
            for one in found["findings"]
        }


def doctor(node: Node, *arguments: str) -> Report:
    """Run `doctor --json` on the node."""
    command = node.command("doctor", "--json", *arguments)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert not done.stderr, done.stderr
    report = Report(done)
    assert report.code == Level(report.fields["worst"]).exit_code
    return report


def test_a_node_in_order_is_told_of_part_by_part(node: Node) -> None:
    node.api_server.granted |= {"nodes/pods"}
    found = doctor(node)
    assert found.fields["node"] == node.name
    kubelet = found.of("kubelet")
    assert kubelet["node name"] == ("ok", "node-1 (of the running kubelet); ; ")
    assert kubelet["static pods"][1].startswith(f"{node.layout.manifests} (of the running kubelet)")
    assert kubelet["pod-resources"][0] == "ok"
    assert found.of("container runtime")["runtime"][0] == "ok"
    assert found.of("daemon")["daemon"][0] == "ok"
    assert found.of("credentials")["client certificate"][0] == "ok"
    api = found.of("API server")
    assert api["API server"] == ("ok", "takes us for system:node:node-1; ; ")
    assert api["cluster"] == ("ok", "the one that we know; ; ")
    assert {level for level, _says in found.of("permissions").values()} == {"ok"}
    node.api_server.granted -= {"nodes/pods"}


def test_each_missing_permission_is_named_with_what_it_costs(node: Node) -> None:
    before = set(node.api_server.granted)
    node.api_server.granted -= {"daemonsets", "leases", "services"}
    try:
        found = doctor(node)
    finally:
        node.api_server.granted |= before
    permissions = found.of("permissions")
    denied = {name for name, (level, _says) in permissions.items() if level == "warning"}
    assert denied == {
        "get daemonsets.apps",
        "get leases.coordination.k8s.io",
        "get services",
        "get nodes/pods",
    }
    assert "the role checkpointd-owners grants it" in permissions["get daemonsets.apps"][1]
    assert "it stays" in permissions["get daemonsets.apps"][1]
    assert "doctor --rbac" in permissions["get nodes/pods"][1]


def test_without_what_it_needs_it_says_fault(node: Node) -> None:
    before = set(node.api_server.granted)
    node.api_server.granted -= {"pods"}
    try:
        found = doctor(node)
    finally:
        node.api_server.granted |= before
    permissions = found.of("permissions")
    assert (permissions["list pods"][0], permissions["watch pods"][0]) == ("fault", "fault")
    assert found.code == 2


def test_while_no_api_server_answers_what_it_says_is_unknown(node: Node) -> None:
    node.api_server.stop()
    try:
        found = doctor(node)
    finally:
        node.api_server.start()
    assert found.of("API server")["API server"][0] == "unknown"
    assert found.of("permissions")["permissions"][0] == "unknown"
    assert found.of("container runtime")["runtime"][0] == "ok"


def test_it_waits_for_nobody_beyond_its_time(node: Node) -> None:
    node.api_server.break_(Fault.HANG_IN_HANDSHAKE)
    node.runtime_fault("hang")
    node.kubelet_fault("pods")
    began = time.monotonic()
    try:
        # The faults hang for a minute: that it returns at all is the proof.
        found = doctor(node, "--timeout", str(SHORT))
    finally:
        node.api_server.repair()
        node.runtime_fault("")
        node.kubelet_fault("pods", value=False)
    assert time.monotonic() - began < 30
    assert found.of("API server")["API server"][0] == "unknown"
    assert found.of("store")["record"][0] == "ok"


def test_a_dead_daemon_hides_nothing_else(processes: Processes) -> None:
    with Node(processes) as node:
        node.api_server.start()
        node.boot()
        assert node.daemon is not None
        node.daemon.kill()
        found = doctor(node)
    daemon = found.of("daemon")["daemon"]
    assert daemon[0] == "warning"
    assert "systemctl start checkpointd" in daemon[1]
    assert found.of("API server")["API server"][0] == "ok"
    assert found.of("kubelet")["kubelet"][0] == "ok"


def test_the_rbac_of_this_node_is_for_this_node(node: Node) -> None:
    command = node.command("doctor", "--rbac")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    role, binding = (
        cast("Json", one.value) for one in yaml_text.parse_all(done.stdout.encode(), "rbac")
    )
    assert role["rules"] == [
        {
            "apiGroups": [""],
            "resources": ["nodes/pods"],
            "verbs": ["get"],
            "resourceNames": [node.name],
        }
    ]
    assert binding["subjects"] == [
        {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "User",
            "name": f"system:node:{node.name}",
        }
    ]
