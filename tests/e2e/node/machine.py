"""A machine: Debian with systemd as process 1, a disk that survives a power cut, and a network.

A machine is systemd-nspawn over an overlay of the cached base root. Everything that it leaves on
the host lies in its own directory, its own mount namespace and its own cgroups, so that several
run side by side and those of a run that died are removed by the next one. This module knows
nothing of Kubernetes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.node.waiting import NotYetError, wait_for

CGROUPS = Path("/sys/fs/cgroup")

# nspawn's exit status when the machine asks to be started again (systemd-nspawn(1), --keep-unit).
REBOOTS = 133

# nspawn's own filter forbids what a container runtime needs.
SYSTEM_CALLS = (
    "@system-service @mount @privileged @raw-io @reboot @swap @keyring"
    " bpf perf_event_open clone3 unshare setns"
)

# $1: a list of cgroup directories; $2: the overlay's options; $3: the mount point; then a command.
# The mount is in a namespace of its own and goes with the last process of the machine.
START = """
set -e
for directory in $1; do echo $$ > "$directory/cgroup.procs"; done
mount -t overlay overlay -o "$2" "$3"
shift 3
exec "$@"
"""


@dataclass(frozen=True)
class Cache:
    """What tests/e2e/setup built: directories that are only read."""

    kubernetes: Path
    root: Path
    images: Path
    machines: Path

    @staticmethod
    def find() -> Cache:
        """Ask the set-up script where its entries are; they must have been built."""
        setup = Path(__file__).parents[1] / "setup"
        paths = subprocess.run([setup, "--paths"], check=True, capture_output=True, text=True)
        kubernetes, root, images = map(Path, paths.stdout.split())
        for path in (kubernetes, root, images):
            if not path.is_dir():
                raise FileNotFoundError(f"{path} is missing: run tests/e2e/setup")
        return Cache(kubernetes, root, images, root.parent / "machines")

    @contextlib.contextmanager
    def lock(self) -> Generator[None]:
        """Keep other processes from making or removing machines meanwhile."""
        self.machines.mkdir(exist_ok=True)
        with (self.machines.parent / "machines.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


class Machine:
    """One machine. Boot it, run commands in it, cut its power, boot it again, close it."""

    def __init__(
        self,
        name: str,
        address: str,
        cache: Cache,
        *,
        keep: bool = False,
        shows: tuple[Path, ...] = (),
    ) -> None:
        """Lay the disk of a new machine.

        `address` is that of its network card `lan0` (with the prefix length, as in
        "10.99.0.1/24"). With `keep` the machine outlives the test run. `shows` are directories of
        the host that it sees under their own names, to read.
        """
        self.name = name
        self.address = address
        self.identity = f"{name}-{os.getpid()}"
        self.directory = cache.machines / self.identity
        self._cache = cache
        self._keep = keep
        self._shows = shows
        self._process: subprocess.Popen[bytes] | None = None
        self._boots = 0
        with cache.lock():
            self.directory.mkdir()
            self._lock = (self.directory / "lock").open("w")
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        if keep:
            (self.directory / "keep").touch()
        for part in ("upper", "work", "mounted", "containerd"):
            (self.directory / part).mkdir()
        (self.directory / "upper/etc").mkdir(mode=0o755)
        (self.directory / "upper/etc/hostname").write_text(f"{name}\n")

    @property
    def leader_file(self) -> Path:
        """The file that holds the process id (on the host) of the machine's process 1."""
        return self.directory / "leader"

    @property
    def leader(self) -> int:
        """The process id, on the host, of the machine's process 1."""
        return int(self.leader_file.read_text())

    @property
    def is_running(self) -> bool:
        """Say whether the power is on."""
        return self._process is not None and self._process.poll() is None

    def boot(self, timeout: float = 60) -> float:
        """Switch on and return when systemd has started everything; the moment of the switch."""
        assert not self.is_running
        self._boots += 1
        overlay = ",".join(
            (
                f"lowerdir={self._cache.root}",
                f"upperdir={self.directory / 'upper'}",
                f"workdir={self.directory / 'work'}",
            )
        )
        nspawn = [
            "systemd-nspawn", "-q", "-b", "-D", str(self.directory / "mounted"),
            "-M", self.identity, f"--hostname={self.name}", "--register=no", "--keep-unit",
            "--capability=all", f"--system-call-filter={SYSTEM_CALLS}", "--private-network",
            "--link-journal=no", "--console=read-only",
            f"--bind-ro={self._cache.kubernetes}:/opt/k8s",
            f"--bind-ro={self._cache.images}:/opt/images",
            # containerd's overlay snapshots cannot lie on an overlay.
            f"--bind={self.directory / 'containerd'}:/var/lib/containerd",
            *(f"--bind-ro={path}" for path in self._shows),
        ]  # fmt: skip
        cgroups = " ".join(str(directory) for directory in self._make_cgroups())
        command = [
            "unshare", "--mount", "--propagation", "private", "bash", "-c", START, "start",
            cgroups, overlay, str(self.directory / "mounted"), *nspawn,
        ]  # fmt: skip
        if not self._keep:
            # nspawn's child dies with it, so nothing survives a test run that is killed.
            command = ["setpriv", "--pdeathsig", "KILL", *command]
        switched_on = time.monotonic()
        with (self.directory / f"console.{self._boots}").open("wb") as console:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                start_new_session=True,
                env={"PATH": os.environ["PATH"], "SYSTEMD_NSPAWN_API_VFS_WRITABLE": "1"},
            )
        leader = wait_for(f"{self.name}: process 1", self._find_leader, timeout, 0.01)
        self.leader_file.write_text(f"{leader}\n")
        wait_for(f"{self.name}: systemd is up", self.is_up, timeout)
        return switched_on

    def _find_leader(self) -> int | None:
        process = self._process
        assert process is not None
        if process.poll() is not None:
            console = (self.directory / f"console.{self._boots}").read_text(errors="replace")
            raise AssertionError(f"{self.name} did not start:\n{console}")
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        for child in children:
            for line in Path(f"/proc/{child}/status").read_text().splitlines():
                if line.startswith("NSpid:") and line.split()[-1] == "1":
                    return int(child)
        return None

    def is_up(self) -> bool:
        """Say whether systemd has started everything; NotYetError tells its state."""
        state = self.sh("systemctl is-system-running", check=False).strip()
        if state not in {"running", "degraded"}:
            raise NotYetError(state)
        return True

    def power_cut(self) -> float:
        """Kill everything in the machine at once; only the disk stays. Return the moment."""
        process = self._process
        assert process is not None
        cut = time.monotonic()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.leader, signal.SIGKILL)
        process.wait(timeout=30)
        self._process = None
        self._remove_cgroups()
        return cut

    def go_down(self, verb: str) -> None:
        """Begin an orderly shutdown: `verb` is systemctl's, as in "reboot".

        Returns at once; boot() starts the machine again from the same disk when it is off.
        """
        self.sh(f"systemctl {verb}")

    def wait_until_off(self, timeout: float = 120) -> int:
        """Return when an orderly shutdown has ended; 0 after a poweroff, REBOOTS after a reboot."""
        process = self._process
        assert process is not None
        code = process.wait(timeout)
        self._process = None
        self._remove_cgroups()
        return code

    def close(self) -> None:
        """Switch off and remove the machine, unless it is to be kept."""
        if self._keep:
            self._lock.close()
            if self._process is not None:
                self._process.returncode = 0  # it outlives us: no warning that it still runs
            print(f"kept: tests/e2e/enter {self.identity} (tests/e2e/enter --remove ...)")
            return
        try:
            if self._process is not None:
                if self.leader_file.exists():
                    self.power_cut()
                else:
                    self._process.kill()
                    self._process.wait(timeout=30)
        finally:
            self._remove_cgroups()
            self._lock.close()
            shutil.rmtree(self.directory, ignore_errors=True)

    # -------------------------------------------------------------------------------------------
    # Inside
    # -------------------------------------------------------------------------------------------

    def sh(self, script: str, *, check: bool = True, timeout: float = 60) -> str:
        """Run a bash script inside and return what it printed.

        With `check` a failure is an AssertionError that shows script and output.
        """
        done = subprocess.run(
            ["nsenter", "-t", str(self.leader), "-a", "bash", "-c", script],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout,
            check=False,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"},
        )
        output = done.stdout.decode(errors="replace")
        if check and done.returncode != 0:
            raise AssertionError(f"{self.name}: {script}\nexit {done.returncode}\n{output}")
        return output

    def path(self, inside: str) -> Path:
        """Return the path by which the host reaches a file of the running machine."""
        assert inside.startswith("/")
        return Path(f"/proc/{self.leader}/root{inside}")

    def on_disk(self, inside: str) -> Path:
        """Return where the host finds what the machine wrote there; the power may be on or off."""
        assert inside.startswith("/")
        return self.directory / "upper" / inside.removeprefix("/")

    def write(self, inside: str, content: str | bytes, mode: int = 0o644) -> None:
        """Write a file inside, with its parent directories, as root."""
        target = self.path(inside)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)
        target.chmod(mode)

    def unit_property(self, unit: str, name: str) -> str:
        """Return one property of a unit, as `systemctl show` prints it."""
        return self.sh(f"systemctl show -P {name} {shlex.quote(unit)}").strip()

    def started_at(self, unit: str) -> float:
        """Return the moment (time.monotonic()) at which systemd started a unit's process."""
        return int(self.unit_property(unit, "ExecMainStartTimestampMonotonic")) / 1e6

    def save_journal(self, directory: Path, units: tuple[str, ...]) -> None:
        """Write the journal, whole and per unit, to `directory`; the power may be on or off."""
        journal = self.directory / "upper/var/log/journal"
        show = ["journalctl", "-q", "-D", str(journal), "-o", "short-precise"]
        for name, command in (("journal", show), *((unit, [*show, "-u", unit]) for unit in units)):
            with (directory / f"{self.name}.{name}.log").open("wb") as out:
                subprocess.run(command, stdout=out, stderr=out, check=False)

    # -------------------------------------------------------------------------------------------
    # Cgroups: below this process's own, so that the machine sees nothing but its own
    # -------------------------------------------------------------------------------------------

    def cgroup(self, controller: str) -> Path:
        """Return the directory, on the host, that the machine sees as its cgroup root."""
        return next(path for path in self._cgroups() if path.is_relative_to(CGROUPS / controller))

    def _cgroups(self) -> Iterator[Path]:
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, own = line.split(":", 2)
            mount = CGROUPS / (controllers.removeprefix("name=") or "unified")
            yield mount / own.lstrip("/") / f"checkpointd-{self.identity}"

    def _make_cgroups(self) -> tuple[Path, ...]:
        made = tuple(self._cgroups())
        for directory in made:
            directory.mkdir(exist_ok=True)
            for name in ("cpuset.cpus", "cpuset.mems"):  # empty at first; then no process fits in
                if directory.is_relative_to(CGROUPS / "cpuset"):
                    (directory / name).write_text((directory.parent / name).read_text())
        return made

    def _remove_cgroups(self) -> None:
        for directory in self._cgroups():
            remove_cgroup(directory)


def remove_cgroup(directory: Path) -> None:
    """Remove a cgroup whose processes have been killed, and all below it."""
    if not directory.is_dir():
        return
    for path, _, _ in sorted(os.walk(directory), reverse=True):

        def is_removed(path: str = path) -> bool:
            Path(path).rmdir()  # busy until the last process has been reaped
            return True

        wait_for(f"{path} is empty", is_removed, 10)


def remove_leftovers(cache: Cache) -> None:
    """Remove the machines of earlier runs that died, but not those that were kept or still run."""
    with cache.lock():
        for directory in cache.machines.iterdir():
            if not (directory / "keep").exists() and not is_locked(directory / "lock"):
                shutil.rmtree(directory, ignore_errors=True)
        for path, directories, _ in os.walk(CGROUPS):
            for name in [name for name in directories if name.startswith("checkpointd-")]:
                directories.remove(name)
                if not (cache.machines / name.removeprefix("checkpointd-")).exists():
                    remove_cgroup(Path(path) / name)


def is_locked(file: Path) -> bool:
    """Say whether a process holds the lock of a file."""
    with file.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
