"""One machine with its own control plane as services: the API server comes and goes at a word."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.node import cluster, daemon, objects, selfhosted
from tests.e2e.node.machine import Machine
from tests.e2e.node.waiting import NotYetError, wait_for

CONTROLLERS = "kube-controller-manager kube-scheduler"
TIMES = {
    "answers-apart": '"100ms"',
    "tombstone-hold": '"0s"',
    "boot-hold": '"0s"',
    "hand-back-ready": '"0s"',
    "retire-daemon-set": '"0s"',
    "retire-store": '"1s"',
    "min-dwell": '"0s"',
    "proven-after": '"1s"',
    "stop-quiet": '"1s"',
}
"""What the daemon waits for by the clock, as short as it lets itself be told."""


@dataclass(frozen=True)
class Standalone:
    """A machine, its cluster and its daemon."""

    machine: Machine
    cluster: cluster.Cluster
    daemon: daemon.Daemon

    @property
    def main_pid(self) -> str:
        """The daemon's process: the same one as long as it was not started anew."""
        return self.machine.unit_property("checkpointd", "MainPID")

    def alarms(self) -> list[str]:
        """Return all alarms that the status shows."""
        status = self.daemon.status()
        found = objects.items(status, "alarms")
        for checkpoint in objects.items(status, "checkpoints"):
            found += objects.items(checkpoint, "alarms")
        return [str(alarm) for alarm in found]

    def wait_for_alarm(self, *words: str, timeout: float = 30) -> str:
        """Return the alarm that holds all these words, once the status shows it."""

        def condition() -> str:
            alarms = self.alarms()
            for alarm in alarms:
                if all(word in alarm for word in words):
                    return alarm
            raise NotYetError(f"alarms: {alarms}")

        return wait_for(f"an alarm with {words}", condition, timeout, 0.5)

    def wait_until_well(self, timeout: float = 40) -> None:
        """Return when no alarm is left."""

        def condition() -> bool:
            alarms = self.alarms()
            if alarms:
                raise NotYetError(f"alarms: {alarms}")
            return True

        wait_for("no alarm is left", condition, timeout, 0.5)

    def journal(self) -> str:
        """Return the daemon's journal."""
        return self.machine.sh("journalctl -u checkpointd --no-pager -o cat")

    def stop_controllers(self) -> None:
        """Have nobody make, bind or collect pods: what is deleted now has no successor."""
        self.machine.sh(f"systemctl stop {CONTROLLERS}")

    def start_controllers(self) -> None:
        """Have controllers and scheduler again."""
        self.machine.sh(f"systemctl start {CONTROLLERS}")

    def stop_api(self) -> None:
        """Have no API server."""
        self.machine.sh("systemctl stop kube-apiserver")

    def start_api(self) -> None:
        """Have the API server again; it needs a second or two until it answers."""
        self.machine.sh("systemctl start kube-apiserver")


def make_standalone(
    machine: Machine, directory: Path, times: Mapping[str, str] | None = None
) -> Standalone:
    """Make the node of a machine that has just booted; the daemon runs, with short times."""
    made = selfhosted.make_control_plane(machine, directory)
    made.install_kubelet(machine)
    made.wait_for_node(machine)
    checkpointd = daemon.Daemon(machine)
    checkpointd.install({"times": {**TIMES, **(times or {})}})
    return Standalone(machine, made, checkpointd)


def set_times(node: Standalone, times: Mapping[str, str]) -> None:
    """Change some times of a daemon that runs."""
    lines = "".join(f"{key} = {value}\n" for key, value in times.items())
    node.machine.write(f"{daemon.SETTINGS}/times.toml", f"[times]\n{lines}")
    node.machine.sh("systemctl reload checkpointd")
