"""A worker goes down in order: its pods end before the daemon does, and nothing is placed for them.

Its API server runs elsewhere. What the static-pod directory holds is read from the worker's disk
after its end; that no name came and went meanwhile, its time of change says.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.e2e.conftest import MakeMachine
from tests.e2e.node import cluster, daemon, measure, objects, selfhosted, workloads
from tests.e2e.node.machine import REBOOTS, Machine
from tests.e2e.node.namespaces import Cable
from tests.e2e.node.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(540)]

AGENT_PORT = 8081
SLOT = "ds.agent"
FROZEN = "/run/checkpointd/frozen"
# The pause process ignores TERM, and systemd's last kill waits for it as long as for a unit.
# A kubelet that ends its pods before a shutdown holds it up in this way.
DELAY = "systemd-inhibit --what=shutdown --mode=delay --who=e2e-test sleep infinity"
LONG_DELAYS = "[Login]\nInhibitDelayMaxSec=120\n"
SHORT = "[Manager]\nDefaultTimeoutStopSec=5s\n"


@dataclass(frozen=True)
class Worker:
    """A worker with one marked pod, of a DaemonSet, and a cable to its API server."""

    machine: Machine
    cluster: cluster.Cluster
    cable: Cable
    daemon: daemon.Daemon

    def agent(self) -> str:
        """Return the UID of the agent's pod, once it runs and the daemon has stored it.

        That it is Ready says little: after a reboot that is an old word for some seconds.
        """
        pod = wait_for("the agent runs", self._running_agent, 90)
        self.daemon.wait_until_stored(SLOT, pod, 60)
        self.daemon.wait_for_checkpoint(SLOT, "known to run", runs, 30)
        return objects.text(pod, "metadata", "uid")

    def _running_agent(self) -> object | None:
        pod = workloads.ready_pod(self.cluster, "agent")
        uid = objects.text(pod, "metadata", "uid") if pod is not None else ""
        return pod if uid and measure.processes_of(self.machine, uid, "httpd") else None

    def manifests(self) -> dict[str, measure.Entry]:
        """Return the static-pod directory as it is on the disk; the power may be off."""
        return measure.snapshot(self.machine.on_disk(cluster.MANIFESTS))

    def stop_api_server(self) -> None:
        """Stop the API server; return when the daemon has noticed."""
        self.cluster.control_plane.sh("systemctl stop kube-apiserver")
        self.daemon.wait_for_api("unknown", 60)

    def lose_api_server(self) -> None:
        """Stop the API server and restart the kubelet, which then would restart no pod."""
        self.stop_api_server()
        self.machine.sh("systemctl restart kubelet")
        self.daemon.wait_for_kubelet(60)
        self.daemon.wait_for_checkpoint(SLOT, "it runs and is not listed", daemon.is_forgotten, 60)

    def regain_api_server(self) -> None:
        """Start the API server again."""
        self.cluster.control_plane.sh("systemctl start kube-apiserver")
        wait_for("the API server is ready", self.cluster.api.is_ready, 60)

    def start(self) -> None:
        """Switch the machine on again, with its API server, and wait for its pod."""
        self.regain_api_server()
        self.machine.boot()
        self.cable.plug()
        self.agent()


@pytest.fixture(scope="module")
def worker(make_shared_machine: MakeMachine, tmp_path_factory: pytest.TempPathFactory) -> Worker:
    """Make the worker and its control plane."""
    master = make_shared_machine("master", "10.99.0.1/24")
    machine = make_shared_machine("worker", "10.99.0.2/24")
    kube = selfhosted.make_control_plane(master, tmp_path_factory.mktemp("reboot") / "pki")
    machine.write("/etc/systemd/system.conf.d/short.conf", SHORT)
    machine.write("/etc/systemd/logind.conf.d/delay.conf", LONG_DELAYS)
    machine.sh("systemctl daemon-reload && systemctl restart systemd-logind")
    cluster.install_base(machine)
    cable = Cable(machine.leader_file, master.leader_file)
    cable.plug()
    kube.install_kubelet(machine, "10.244.1.0/24")
    kube.wait_for_node(machine)
    workloads.start_agent(kube, AGENT_PORT)
    made = Worker(machine, kube, cable, daemon.Daemon(machine))
    made.daemon.install()
    made.agent()
    return made


@pytest.fixture
def graceful_kubelet(worker: Worker) -> Iterator[None]:
    """Have the kubelet hold up shutdowns until it has ended its pods (GracefulNodeShutdown)."""
    machine, config = worker.machine, "/etc/kubernetes/kubelet.json"
    cluster.install_template(machine, "kubelet.json", config)
    unit = "/etc/systemd/system/kubelet.service"
    plain = machine.path(unit).read_text()
    machine.write(unit, plain.replace("/kubelet ", f"/kubelet --config={config} ", 1))
    machine.sh("systemctl daemon-reload && systemctl restart kubelet")
    wait_for("the kubelet holds up shutdowns", lambda: holds_up(machine, "kubelet"), 60)
    yield
    machine.write(unit, plain)
    machine.sh("systemctl daemon-reload && systemctl restart kubelet")


def test_an_orderly_reboot_places_nothing(worker: Worker) -> None:
    watch = Directory(worker)

    worker.machine.go_down("reboot")
    assert worker.machine.wait_until_off() == REBOOTS

    watch.assert_untouched()
    worker.start()
    watch.assert_untouched()


def test_pods_that_end_while_the_machine_goes_down_get_no_copy(worker: Worker) -> None:
    agent = worker.agent()
    worker.lose_api_server()
    watch = Directory(worker)
    pods_end, runtime_ended = place_gates(worker.machine)
    worker.machine.sh(f"systemd-run -q --unit=delay {DELAY}")
    wait_for("somebody holds up shutdowns", lambda: holds_up(worker.machine, "e2e-test"), 10)

    worker.machine.go_down("reboot")
    kill_pod(worker.machine, agent)
    worker.daemon.wait_for_checkpoint(SLOT, "rule 11 alone keeps it from a copy", is_held, 30)
    assert worker.machine.is_up(), "systemd has not begun: logind waits"
    worker.machine.sh("systemctl stop delay")
    pods_end.wait()
    worker.daemon.wait_for_checkpoint(SLOT, "it is left so", is_held, 30)
    pods_end.open()
    runtime_ended.wait()
    wait_for("the daemon sees no kubelet", lambda: not worker.daemon.sees_kubelet(), 30)
    worker.daemon.wait_for_checkpoint(SLOT, "it is left so", is_left_alone, 30)
    runtime_ended.open()
    assert worker.machine.wait_until_off() == REBOOTS

    watch.assert_untouched()
    worker.start()
    watch.assert_untouched()


@pytest.mark.usefixtures("graceful_kubelet")
@pytest.mark.parametrize("api", ["there", "gone"])
def test_pods_that_their_kubelet_ends_before_the_shutdown_get_no_copy(
    worker: Worker, api: str
) -> None:
    agent = worker.agent()
    if api == "gone":
        worker.stop_api_server()
    watch = Directory(worker)
    pods_end, runtime_ended = place_gates(worker.machine)

    worker.machine.go_down("reboot")
    pods_end.wait()
    assert not measure.processes_of(worker.machine, agent, "httpd"), "the kubelet did not end it"
    pods_end.open()
    runtime_ended.wait()
    runtime_ended.open()
    assert worker.machine.wait_until_off() == REBOOTS

    watch.assert_untouched()
    worker.start()
    watch.assert_untouched()


def test_a_soft_reboot_places_nothing(worker: Worker) -> None:
    version = int(worker.machine.sh("systemctl --version").split()[1])
    if version < 254:
        pytest.skip(f"systemd {version} of the test node has no soft-reboot: 254 is the first")
    worker.agent()
    watch = Directory(worker)

    worker.machine.go_down("soft-reboot")
    wait_for("the machine is up again", lambda: is_up_again(worker.machine), 60)
    worker.agent()

    watch.assert_untouched()


def test_copies_start_again_when_a_shutdown_is_cancelled(worker: Worker) -> None:
    """The last test: half of what the machine ran stays stopped."""
    agent = worker.agent()
    worker.machine.sh("shutdown -P +60 && shutdown -c")
    worker.lose_api_server()
    watch = Directory(worker)
    pods_end, _ = place_gates(worker.machine)

    worker.machine.go_down("poweroff")
    pods_end.wait()
    kill_pod(worker.machine, agent)
    worker.daemon.wait_for_checkpoint(SLOT, "rule 11 alone keeps it from a copy", is_held, 30)
    watch.assert_untouched()
    worker.machine.sh("systemctl cancel")
    pods_end.open()
    wait_for("a copy is placed", lambda: len(worker.daemon.copies()) == 1, 30)
    assert worker.machine.path(FROZEN).exists(), "nobody believes it, but it is there"


class Directory:
    """The static-pod directory of a worker, from now on: nothing may come, go, or change."""

    def __init__(self, worker: Worker) -> None:
        """Remember it as it is on the disk, and watch until the machine is off."""
        self._worker = worker
        self._before = worker.manifests()
        self._watch = measure.DirectoryWatch(worker.machine, cluster.MANIFESTS)

    def assert_untouched(self) -> None:
        """Fail if a name came or went, or if a byte, a mode or a time is another."""
        assert self._watch.changes == []
        assert self._worker.manifests() == self._before


@dataclass(frozen=True)
class Gate:
    """A place of the shutdown at which the machine waits, with all that is stopped later alive."""

    machine: Machine
    name: str

    def wait(self) -> None:
        """Return when the shutdown has come to this place."""
        reached = self.machine.path(f"/run/{self.name}.reached")
        wait_for(f"the shutdown reaches {self.name}", reached.exists, 60)

    def open(self) -> None:
        """Let the shutdown go on."""
        self.machine.path(f"/run/{self.name}.open").touch()


def place_gates(machine: Machine) -> tuple[Gate, Gate]:
    """Hold up the next shutdown before the kubelet is stopped, and when the runtime has been."""
    runtime = "kubelet.service containerd.service"
    places = {
        "gate-pods": (runtime, "checkpointd-freeze.service"),
        "gate-runtime": ("checkpointd.service", runtime),
    }
    for name, (after, before) in places.items():
        unit = f"/etc/systemd/system/{name}.service"
        cluster.install_template(
            machine, "gate.service", unit, name=name, after=after, before=before
        )
    machine.sh(f"systemctl daemon-reload && systemctl start {' '.join(places)}")
    pods, ended = (Gate(machine, name) for name in places)
    return pods, ended


def kill_pod(machine: Machine, uid: str) -> None:
    """Kill the processes of a pod's container, as the end of a runtime may."""
    for command in ("httpd", "sh"):
        for pid in measure.processes_of(machine, uid, command):
            os.kill(pid, signal.SIGKILL)


def runs(checkpoint: object) -> bool:
    """Say whether the daemon knows that a slot's pod runs."""
    return daemon.answer(checkpoint, "does parent or successor run?").startswith("yes;")


def is_held(checkpoint: object) -> bool:
    """Say whether rule 11 alone keeps a slot's pod from its copy: nobody else will start it."""
    managed = daemon.answer(checkpoint, "will the kubelet restart it?")
    return is_left_alone(checkpoint) and managed.startswith("no;")


def is_left_alone(checkpoint: object) -> bool:
    """Say whether the daemon knows that a slot's pod has ended and lets it be: rule 11."""
    answer = daemon.answer(checkpoint, "does parent or successor run?")
    return answer.startswith("no;") and objects.find(checkpoint, "rule") == "11"


def is_up_again(machine: Machine) -> bool:
    """Say whether the user space has been started anew, without a reboot."""
    count = machine.sh("systemctl show -P SoftRebootsCount", check=False).strip()
    return count == "1" and machine.is_up()


def holds_up(machine: Machine, who: str) -> bool:
    """Say whether that one has its lock against shutdowns."""
    return who in machine.sh("systemd-inhibit --list --no-legend")
