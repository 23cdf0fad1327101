"""Credentials inside the unit's sandbox: a plugin that gives them, that hangs, another node's."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from tests.e2e.conftest import MakeMachine
from tests.e2e.node import cluster, objects, selfhosted
from tests.e2e.node.daemon import Daemon
from tests.e2e.node.machine import Machine
from tests.e2e.node.pki import Certificate
from tests.e2e.node.waiting import NotYetError, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

HOME = "/etc/checkpointd"
VERSION = "client.authentication.k8s.io/v1"
SLEEP = "sleep 4711"


def write_kubeconfig(made: cluster.Cluster, machine: Machine, user: dict[str, object]) -> None:
    """Write the daemon's kubeconfig, as root does: whole."""
    ca = base64.b64encode(made.authority.certificate.read_bytes()).decode()
    server = f"https://127.0.0.1:{cluster.API_PORT}"
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [
            {"name": "c", "cluster": {"server": server, "certificate-authority-data": ca}}
        ],
        "users": [{"name": "u", "user": user}],
    }
    machine.write(f"{HOME}/new.conf", json.dumps(config), 0o600)
    machine.sh(f"mv {HOME}/new.conf {HOME}/exec.conf")


def pair_of(user: Certificate) -> dict[str, object]:
    """Return the user of a kubeconfig with this pair embedded."""
    return {
        "client-certificate-data": base64.b64encode(user.certificate.read_bytes()).decode(),
        "client-key-data": base64.b64encode(user.key.read_bytes()).decode(),
    }


def wait_for_reason(daemon: Daemon, words: str, timeout: float) -> None:
    """Return when the status has these words of the API server."""

    def condition() -> bool:
        api = json.dumps(objects.find(daemon.status(), "api"))
        if words not in api:
            raise NotYetError(api)
        return True

    wait_for(f"the status says {words}", condition, timeout, 0.2)


def alarms(daemon: Daemon) -> str:
    """Return what the status warns of."""
    return json.dumps(objects.find(daemon.status(), "alarms"))


def test_a_plugin_gives_hangs_and_gives_again(make_machine: MakeMachine, tmp_path: Path) -> None:
    machine = make_machine("creds", "10.99.0.1/24")
    made = selfhosted.make_control_plane(machine, tmp_path / "pki")
    made.install_kubelet(machine)
    own = made.authority.issue("own", f"/O=system:nodes/CN=system:node:{machine.name}")
    status = {
        "clientCertificateData": own.certificate.read_text(),
        "clientKeyData": own.key.read_text(),
    }
    answer = {"apiVersion": VERSION, "kind": "ExecCredential", "status": status}
    machine.write(f"{HOME}/answer.json", json.dumps(answer), 0o600)
    machine.write(f"{HOME}/plugin", f"#!/bin/sh\n. {HOME}/behaviour\n", 0o755)
    machine.write(f"{HOME}/behaviour", f"cat {HOME}/answer.json\n")
    section = {"apiVersion": VERSION, "command": "./plugin", "interactiveMode": "Never"}
    write_kubeconfig(made, machine, {"exec": section})
    daemon = Daemon(machine)
    daemon.install({"kubelet": {"kubeconfig": f'"{HOME}/exec.conf"'}})
    daemon.wait_for_api("trusted", 60)

    machine.write(f"{HOME}/behaviour", f"{SLEEP} & setsid {SLEEP} & {SLEEP}\n")
    machine.sh("systemctl restart checkpointd")
    wait_for_reason(daemon, "plugin: killed: not done in 10 s", 40)
    machine.write(f"{HOME}/behaviour", f"cat {HOME}/answer.json\n")
    daemon.wait_for_api("trusted", 60)
    wait_for(
        "no child of a plugin is left",
        lambda: not machine.sh("pgrep -x sleep -a | grep 4711 || true"),
        5,
    )

    other = made.authority.issue("other", "/O=system:nodes/CN=system:node:other")
    write_kubeconfig(made, machine, pair_of(other))
    # This server has no pods and sends no bookmarks: the watch is as quiet as one can be.
    # One of 1.20 lets nodes read each other: what remains is the alarm.
    alarm = f"speaks for other, but this node is {machine.name}"
    wait_for("an alarm", lambda: alarm in alarms(daemon), 60)
    write_kubeconfig(made, machine, pair_of(own))
    wait_for("no alarm", lambda: alarm not in alarms(daemon), 60)
    daemon.wait_for_api("trusted", 60)
    assert machine.unit_property("checkpointd", "NRestarts") == "0"
    assert daemon.copies() == []
    machine.sh("journalctl --sync")
    journal = machine.sh("journalctl -u checkpointd -o cat")
    assert "PRIVATE KEY" not in journal
