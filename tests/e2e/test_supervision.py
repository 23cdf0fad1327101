"""A daemon that hangs, fails or is slow: systemd brings it back, and the kubelet starts anyway.

The machine has no cluster: its kubelet runs static pods alone. Its runtime is slow to start, so
that a kubelet that waited for more than the daemon's first try would be seen to.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.e2e.conftest import MakeMachine
from tests.e2e.node import cluster, daemon, objects
from tests.e2e.node.cluster import MANIFESTS
from tests.e2e.node.journal import Journal
from tests.e2e.node.machine import Machine
from tests.e2e.node.report import Times
from tests.e2e.node.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

PROGRAM = "/usr/bin/checkpointd"
KEPT = "/usr/bin/checkpointd.kept"
BOOT_ID = "/run/boot-id"  # see daemon.PATHS
LIBRARY = "/usr/lib/python3/dist-packages/psutil"
DROP_INS = "/etc/systemd/system/{}.service.d/test.conf"
RUNTIME_SECONDS = 1.5
LONGEST_WAIT = 10.0
"""Seconds for which a kubelet may be kept waiting (TimeoutStartSec=)."""
ANOTHER_ROUND = 5.0
"""Half of what a second try would add; machines beside this one make boots differ by less."""
SCENARIO = "a daemon that does not start"


@dataclass(frozen=True)
class Fault:
    """What keeps the daemon from starting: how it comes, how it goes, does the kubelet wait."""

    name: str
    breaks: str
    mends: str
    hangs: bool = False


def other_program(name: str, script: str, *, hangs: bool = False) -> Fault:
    """Return the fault of another program in the daemon's place."""
    write = f"printf '#!/bin/sh\\n{script}\\n' >{PROGRAM}; chmod +x {PROGRAM}"
    return Fault(name, f"mv {PROGRAM} {KEPT}; {write}", f"mv -f {KEPT} {PROGRAM}", hangs)


FAULTS = (
    other_program("exits at once", "exit 1"),
    other_program("fails after a while", "sleep 0.8; exit 1"),
    Fault("a library is missing", f"mv {LIBRARY} /root/it", f"mv /root/it {LIBRARY}"),
    Fault(
        "no store",
        f"mv {daemon.STORE} /root/it && touch {daemon.STORE}",
        f"rm {daemon.STORE} && mv /root/it {daemon.STORE}",
    ),
    Fault(
        "a file that never comes",
        f"rm {BOOT_ID} && mkfifo {BOOT_ID}",
        f"rm {BOOT_ID} && cat /proc/sys/kernel/random/boot_id >{BOOT_ID}",
        hangs=True,
    ),
)


@pytest.fixture(scope="module")
def machine(make_shared_machine: MakeMachine) -> Machine:
    """The machine of all tests of this module, with a kubelet and the daemon."""
    made = make_shared_machine("supervised", "10.99.0.1/24")
    cluster.install_base(made)
    cluster.install_template(made, "containerd.toml", "/etc/containerd/config.toml")
    subnet = "10.244.0.0/24"
    cluster.install_template(made, "cni.json", "/etc/cni/net.d/10-pods.conflist", subnet=subnet)
    made.sh(f"mkdir -p -m 0700 {MANIFESTS}")
    arguments = (
        f"--hostname-override={made.name} --container-runtime=remote"
        " --container-runtime-endpoint=unix:///run/containerd/containerd.sock"
        f" --pod-manifest-path={MANIFESTS} --fail-swap-on=false --cgroup-driver=cgroupfs"
        " --eviction-hard="
    )
    unit = "/etc/systemd/system/kubelet.service"
    cluster.install_template(made, "kubelet.service", unit, arguments=arguments)
    slow = f"[Service]\nExecStartPre=/bin/sleep {RUNTIME_SECONDS}\n"
    made.write(DROP_INS.format("containerd"), slow)
    made.write(DROP_INS.format("checkpointd"), "[Service]\nWatchdogSec=3\n")
    cluster.start_units(made, "containerd", "kubelet")
    daemon.Daemon(made).install()
    return made


def test_a_daemon_that_hangs_at_the_boot_keeps_the_kubelet_waiting_for_10_s_once(
    machine: Machine, times: Times
) -> None:
    machine.sh("systemctl -q disable checkpointd")
    without = boot(machine)
    machine.sh("systemctl -q enable checkpointd")
    well = boot(machine)
    assert machine.started_at("checkpointd") < machine.started_at("containerd")
    fault = other_program("hangs", "exec sleep infinity", hangs=True)
    machine.sh(fault.breaks)
    hanging = boot(machine)
    times.add(SCENARIO, "kubelet's start, without the daemon", without)
    times.add(SCENARIO, "kubelet's start, the daemon well", well)
    times.add(SCENARIO, "kubelet's start, the daemon hanging", hanging)
    try:
        assert hanging - without < LONGEST_WAIT + ANOTHER_ROUND
        shown = machine.sh("journalctl -b -o cat -u checkpointd")
        assert "checkpointd.service: start operation timed out." in shown
    finally:
        machine.sh(fault.mends)
    wait_until_alive(machine)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_daemon_that_cannot_start_is_tried_again_and_again_and_the_kubelet_runs(
    machine: Machine, fault: Fault, times: Times
) -> None:
    machine.sh(fault.breaks)
    try:
        waited = start_all(machine)
        kubelet = machine.unit_property("kubelet", "MainPID")
        times.add(SCENARIO, f"kubelet's start: {fault.name}", waited)
        longest = LONGEST_WAIT if fault.hangs else 0.0
        assert waited < RUNTIME_SECONDS + longest + ANOTHER_ROUND
        wait_for("it is tried again", lambda: restarts(machine) >= 1, 30)
    finally:
        machine.sh(fault.mends)
    wait_until_alive(machine)
    assert machine.unit_property("kubelet", "MainPID") == kubelet


def test_a_slow_start_is_named_in_the_journal(machine: Machine) -> None:
    journal = Journal(machine)
    fault = other_program("slow", f'sleep 4; exec {KEPT} "$@"')
    machine.sh(fault.breaks)
    try:
        waited = start_all(machine)
    finally:
        machine.sh(fault.mends)
    assert waited > 4
    journal.wait_for("slow start: *at a boot the kubelet waits for it", 10)


def test_a_daemon_that_was_stopped_is_ended_by_its_watchdog_and_comes_back(
    machine: Machine,
) -> None:
    shipped = machine.sh("grep ^WatchdogSec= /lib/systemd/system/checkpointd.service")
    assert shipped == "WatchdogSec=30\n"
    wait_until_alive(machine)
    journal, before = Journal(machine), machine.unit_property("checkpointd", "MainPID")
    machine.sh(f"kill -STOP {before}")
    assert "THE DAEMON IS NOT RUNNING" in machine.sh("checkpointd status", check=False)
    journal.wait_for("checkpointd.service: Watchdog timeout", 30)
    journal.wait_for("Started checkpointd.service", 30)
    wait_until_alive(machine)
    assert machine.unit_property("checkpointd", "MainPID") != before


def boot(machine: Machine) -> float:
    """Cut the power and boot; return the seconds from the switch to the kubelet's start."""
    machine.power_cut()
    switched_on = machine.boot()
    wait_for("the kubelet has started", lambda: machine.started_at("kubelet") > 0, 60)
    return machine.started_at("kubelet") - switched_on


def start_all(machine: Machine) -> float:
    """Stop all and start all in one transaction, as a boot does; return the kubelet's wait."""
    units = "checkpointd containerd kubelet"
    machine.sh(f"systemctl stop {units} checkpointd-started.target; systemctl reset-failed")
    clock = float(machine.sh("cut -d' ' -f1 /proc/uptime"))
    machine.sh(f"systemctl start --no-block {units}")
    wait_for("the kubelet has started", lambda: machine.started_at("kubelet") > clock, 60)
    return machine.started_at("kubelet") - clock


def restarts(machine: Machine) -> int:
    """Return how often systemd has restarted the daemon by itself."""
    return int(machine.unit_property("checkpointd", "NRestarts"))


def wait_until_alive(machine: Machine) -> None:
    """Return when the daemon runs and says so."""
    checkpointd = daemon.Daemon(machine)
    wait_for(
        "the daemon is alive",
        lambda: (
            objects.find(checkpointd.status(), "daemon_alive") is True
            and machine.unit_property("checkpointd", "ActiveState") == "active"
        ),
        30,
    )
