"""The daemon is killed again and again while it stores, activates, hands back and removes.

First with SIGKILL at random moments, then at sampled system calls on its disk. It converges each
time; what a kubelet could see was whole at every moment; what ran and was not meant to end still
runs; nothing stored is lost.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.conftest import MakeMachine
from tests.e2e.node import cluster, daemon, measure, objects, standalone, webs
from tests.e2e.node.machine import Machine
from tests.e2e.node.standalone import Standalone
from tests.e2e.node.waiting import wait_for
from tests.fakes.directory_watch import ManifestWatch

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

SEED = int(os.environ.get("CHECKPOINTD_TEST_SEED", "0")) or random.SystemRandom().randrange(1 << 32)
KILLS_PER_ACT = 50
FAULTS_PER_ACT = 5
MOST_CALLS = 45  # of one slot's act; the sampled fault points lie in it
WEBS = {f"web-{number}": 8080 + number for number in range(1, 6)}
EXCLUSIVE = ("web-4", "web-5")
KEPT = "kept"
FAULTY_DAEMON = Path(__file__).parents[1] / "fakes" / "faulty_daemon.py"
INSTALLED = "/usr/local/lib/checkpointd-test/faulty_daemon.py"
DROP_IN = "/etc/systemd/system/checkpointd.service.d/test.conf"
CONFIG = "/etc/checkpointd/checkpointd.toml"
ORDERS, CALLS = "/run/checkpointd/test-orders", "/run/checkpointd/test-calls"
QUICK = "[Service]\nRestartSec=20ms\n"
FAULTY = f"""{QUICK}Environment=PYTHONPATH=/usr/lib/checkpointd
ExecStart=
ExecStart=/usr/bin/python3 {INSTALLED} {CONFIG} --orders {ORDERS} --count {CALLS}
"""


@pytest.fixture(scope="module")
def node(make_shared_machine: MakeMachine, tmp_path_factory: pytest.TempPathFactory) -> Standalone:
    """The node, with one more marked pod that nothing happens to."""
    machine = make_shared_machine("killed", "10.99.0.1/24")
    made = standalone.make_standalone(machine, tmp_path_factory.mktemp("killed") / "pki")
    webs.create(made, KEPT, 8080)
    wait_for("the kept pod is stored", lambda: webs.is_stored(made, KEPT), 60)
    return made


def test_200_random_kills_lose_nothing_and_stop_nothing(node: Standalone) -> None:
    print(f"CHECKPOINTD_TEST_SEED={SEED}")
    use_drop_in(node, QUICK)
    killer = Killer(node.machine, random.Random(SEED))
    with watching(node) as guard:
        play(node, Trouble(lambda part: killer.kill(round(KILLS_PER_ACT * part))), guard)
    ends = [line for line in node.journal().splitlines() if "Main process exited" in line]
    assert len([line for line in ends if "status=9/KILL" in line]) == 4 * KILLS_PER_ACT == len(ends)


def test_20_deaths_at_sampled_system_calls_lose_nothing_and_stop_nothing(
    node: Standalone,
) -> None:
    print(f"CHECKPOINTD_TEST_SEED={SEED}")
    node.machine.write(INSTALLED, FAULTY_DAEMON.read_bytes())
    use_drop_in(node, FAULTY)
    chance = random.Random(SEED)
    with watching(node) as guard:
        play(node, Trouble(start=partial(order_faults, node, chance)), guard)
    deaths = [line for line in calls(node) if line.startswith("killed")]
    print(*deaths, sep="\n")
    assert len(deaths) == 4 * FAULTS_PER_ACT


# ---- the play ------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Trouble:
    """What happens to the daemon: at the start of each act, and with each share of it."""

    during: Callable[[float], None] = lambda _part: None
    start: Callable[[], None] = lambda: None


def play(node: Standalone, trouble: Trouble, guard: Guard) -> None:
    """Store five pods, delete them with the API server, hand back, remove them."""
    each = 1 / len(WEBS)
    standalone.set_times(node, {"retire-store": '"10m"'})
    trouble.start()
    for name, port in WEBS.items():
        webs.create(node, name, port, host_network=name in EXCLUSIVE)
        trouble.during(each)
    converge(node, "all are stored", webs.is_stored)
    guard.check()
    stored = {name: webs.generations(node, name) for name in WEBS}

    webs.delete_pods(node, WEBS)
    trouble.start()
    node.stop_api()
    trouble.during(1)
    converge(node, "all copies serve", webs.is_serving)
    guard.check()
    assert {name: webs.generations(node, name) for name in WEBS} == stored

    trouble.start()
    node.start_api()
    node.start_controllers()
    trouble.during(1)
    converge(node, "all are handed back", webs.is_stored)
    guard.check()
    guard.check_copies()

    standalone.set_times(node, {"retire-store": '"1s"'})
    trouble.start()
    for name in WEBS:
        webs.delete(node, name)
        trouble.during(each)
    converge(node, "all are removed", webs.is_removed)
    guard.check()


def converge(node: Standalone, what: str, is_done: Callable[[Standalone, str], bool]) -> None:
    """Wait until all five have come to where they would have been."""
    for name in WEBS:
        wait_for(f"{what}: {name}", partial(is_done, node, name), 90)
    wait_for("nothing unfinished is left", lambda: not leftovers(node), 10)


# ---- random kills --------------------------------------------------------------------------------
class Killer:
    """Kill the daemon's process at random moments of its life."""

    def __init__(self, machine: Machine, chance: random.Random) -> None:
        """Look for the unit's processes as the host sees them."""
        self._machine = machine
        self._chance = chance
        self._last = ""
        self.killed = 0

    def kill(self, times: int) -> None:
        """Let it live for a random time, then kill it; again and again."""
        until = self.killed + times
        while self.killed < until:
            process = wait_for("the daemon has been started again", self._find, 15, 0.02)
            # Not a wait for anything: it starts in 0.5 s, and acts at once.
            time.sleep(self._chance.uniform(0.1, 0.7))
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(process, signal.SIGKILL)
                self.killed += 1
            os.close(process)

    def _find(self) -> int | None:
        unit = "*/system.slice/checkpointd.service/cgroup.procs"
        for file in self._machine.cgroup("systemd").glob(unit):
            for line in file.read_text().split():
                process = os.pidfd_open(int(line))
                command = Path(f"/proc/{line}/cmdline").read_bytes()
                if b"checkpointd\0run" in command and line != self._last:
                    self._last = line  # stays in its cgroup until it is reaped
                    return process
                os.close(process)
        return None


# ---- sampled system calls ------------------------------------------------------------------------
def order_faults(node: Standalone, chance: random.Random) -> None:
    """Start the daemon anew, so that it dies at five of its next system calls, one after another.

    A death that waits for a system call which nothing asks for any more would never come; in that
    case the next act brings it.
    """
    orders = [
        f"{chance.choice(('before', 'after'))} {chance.randint(1, MOST_CALLS)}\n"
        for _ in range(FAULTS_PER_ACT)
    ]
    node.machine.write(ORDERS, "".join(orders))
    node.machine.sh("systemctl restart checkpointd", check=False)


def calls(node: Standalone) -> list[str]:
    """Return the system calls of the faulty daemon so far, and its deaths."""
    return node.machine.path(CALLS).read_text().splitlines()


def use_drop_in(node: Standalone, content: str) -> None:
    """Replace what the unit has beyond the shipped one, and start the daemon with it."""
    node.machine.write(DROP_IN, content)
    node.machine.sh("systemctl daemon-reload && systemctl restart checkpointd")


# ---- what must hold ------------------------------------------------------------------------------
@dataclass
class Guard:
    """What is looked at all the time, and what must never have changed."""

    node: Standalone
    whole: ManifestWatch
    names: measure.DirectoryWatch
    kept: object
    pids: list[int] = field(default_factory=list[int])

    def check(self) -> None:
        """Fail if anything was half, lost or stopped."""
        assert self.whole.faults == []
        assert measure.processes_of(self.node.machine, self.uid, "httpd") == self.pids
        assert webs.generations(self.node, KEPT) == self.kept
        assert not self.node.machine.path(f"{daemon.STORE}/quarantine").exists()

    def check_copies(self) -> None:
        """Fail unless each copy was placed once and went once."""
        appeared = sorted(change.name for change in self.names.changes if is_placed(change))
        gone = sorted(change.name for change in self.names.changes if is_gone(change))
        assert len(appeared) == len(WEBS)
        assert appeared == gone

    @property
    def uid(self) -> str:
        """The UID of the pod that nothing happens to."""
        return objects.text(webs.state(self.node, KEPT), "parent", "uid")


def is_placed(change: measure.Change) -> bool:
    """Say whether a manifest of ours came to be seen."""
    return change.appeared and change.name.startswith(daemon.COPY_PREFIX)


def is_gone(change: measure.Change) -> bool:
    """Say whether a manifest of ours went."""
    return not change.appeared and change.name.startswith(daemon.COPY_PREFIX)


@contextlib.contextmanager
def watching(node: Standalone) -> Generator[Guard]:
    """Watch the static-pod directory until the end."""
    names = measure.DirectoryWatch(node.machine, cluster.MANIFESTS)
    try:
        with ManifestWatch() as whole:
            whole.add(node.machine.path(cluster.MANIFESTS))
            guard = Guard(node, whole, names, webs.generations(node, KEPT))
            guard.pids = measure.processes_of(node.machine, guard.uid, "httpd")
            assert guard.pids
            yield guard
    finally:
        names.close()
    log = node.journal()
    for word in ("Traceback", "a cycle failed", "lost generations", "safety rule", "without rest"):
        assert word not in log


def leftovers(node: Standalone) -> list[str]:
    """Return what lies under the names of what is unfinished."""
    tops = (node.machine.path(daemon.STORE), node.machine.path(cluster.MANIFESTS))
    return [str(path) for top in tops for path in top.rglob(".checkpointd-*")]
