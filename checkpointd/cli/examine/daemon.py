"""Look at the configuration, the daemon and its units."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import checkpointd
from checkpointd.cli.examine.finding import Finding, fault, good, note, unknown, warning
from checkpointd.cli.examine.scene import Scene
from checkpointd.clients import pid1
from checkpointd.errors import SourceError

UNIT = "checkpointd.service"
FREEZE = "checkpointd-freeze.service"
STARTED = "checkpointd-started.target"
SECONDS = 3.0
"""Seconds for one question to PID 1."""
CAPABILITIES = {
    2: ("CAP_DAC_READ_SEARCH", "volumes that belong to other users are not read: no checkpoints"),
    19: (
        "CAP_SYS_PTRACE",
        "it is not seen whose pod serves the API: such a pod is not brought back at once (rule 3b)",
    ),
    0: ("CAP_CHOWN", "the files of copies have root as their owner"),
    3: ("CAP_FOWNER", "the files of copies may have other modes and labels than the pod's"),
}
"""By number (include/uapi/linux/capability.h), with what it costs to lack one."""
_RESTORE = "use the unit as it is shipped; see what changes it: systemctl cat checkpointd"


def examine_configuration(scene: Scene) -> Iterator[Finding]:
    """Say what is wrong with the configuration."""
    for problem in scene.problems:
        make = warning if scene.is_last_good else fault
        costs = "the last good configuration is in force" if scene.is_last_good else "no start"
        yield make("configuration", problem, costs, "repair it; look again: checkpointd config")
    if not scene.problems:
        count = len(scene.settings.origins)
        yield good("configuration", f"no fault; keys set: {count}, the others are defaults")


def examine_daemon(scene: Scene) -> Iterator[Finding]:
    """Say whether the daemon lives, and with which rights."""
    yield from _process(scene)
    try:
        yield from _units(scene)
    except SourceError as error:
        yield unknown("units", str(error), "run this as root, on the node itself")


def _process(scene: Scene) -> Iterator[Finding]:
    seen = scene.picture
    if seen is None or not seen.alive:
        yield warning(
            "daemon",
            scene.picture_problem or "it does not run",
            "copies that run go on running; nothing new is started",
            "systemctl start checkpointd; journalctl -u checkpointd -b",
        )
        return
    yield good("daemon", f"runs as process {seen.status.pid}")
    if seen.status.version != checkpointd.__version__:
        yield note(
            "daemon",
            f"it is version {seen.status.version}, this program is {checkpointd.__version__}",
            "systemctl restart checkpointd (copies stay as they are)",
        )
    yield from capabilities(_read_capabilities(scene.paths.proc, seen.status.pid))


def _read_capabilities(proc: Path, pid: int) -> int | None:
    """Return the effective set of a process as a bit mask, None where that is not to be had."""
    try:
        lines = (proc / str(pid) / "status").read_text(encoding="utf-8", errors="replace")
        (found,) = (line.split()[1] for line in lines.splitlines() if line.startswith("CapEff:"))
        return int(found, 16)
    except (OSError, ValueError, IndexError):
        return None


def capabilities(mask: int | None) -> Iterator[Finding]:
    """Say which capabilities are missing in a bit mask, and what that costs."""
    if mask is None:
        yield unknown("capabilities", "they cannot be read")
        return
    missing = [found for number, found in CAPABILITIES.items() if not mask >> number & 1]
    for name, costs in missing:
        yield warning("capabilities", f"{name} is missing", costs, _RESTORE)
    if not missing:
        yield good("capabilities", ", ".join(name for name, _costs in CAPABILITIES.values()))


def _units(scene: Scene) -> Iterator[Finding]:
    """Yield what PID 1 knows of our units. Raises SourceError."""
    socket = scene.paths.manager_socket
    if _ask(socket, UNIT, "Unit", "LoadState") != "loaded":
        yield warning(
            "unit",
            f"systemd knows no {UNIT}",
            "nothing starts checkpointd at boot, before the kubelet",
            "make install; systemctl daemon-reload; systemctl enable --now checkpointd",
        )
        return
    state = str(_ask(socket, UNIT, "Unit", "UnitFileState"))
    if state.startswith("enabled") or state in ("static", "generated"):
        yield good("unit", f"{UNIT} is {state}")
    else:
        yield warning(
            "unit",
            f"{UNIT} is {state or 'not enabled'}",
            "nothing starts checkpointd at boot, before the kubelet",
            "systemctl enable checkpointd checkpointd-freeze",
        )
    if scene.picture is None or not scene.picture.alive:
        bounding = _ask(socket, UNIT, "Service", "CapabilityBoundingSet")
        yield from capabilities(bounding if isinstance(bounding, int) else None)
    yield from _freeze(socket)
    before = [_texts(_ask(socket, unit, "Unit", "Before")) for unit in (UNIT, STARTED)]
    yield from order(_kubelets_unit(scene), before[0] + before[1])
    writable = _texts(_ask(socket, UNIT, "Service", "ReadWritePaths"))
    strict = _ask(socket, UNIT, "Service", "ProtectSystem") == "strict"
    yield from writes(scene.place("manifest_dir").value, writable if strict else ("/",))


def _freeze(socket: Path) -> Iterator[Finding]:
    if _ask(socket, FREEZE, "Unit", "ActiveState") == "active":
        yield good("unit", f"{FREEZE} is active")
        return
    yield warning(
        "unit",
        f"{FREEZE} is not active",
        "an orderly shutdown may be taken for an outage: copies start while the machine goes down",
        f"systemctl enable --now {FREEZE.removesuffix('.service')}",
    )


def order(kubelet: str, before: tuple[str, ...]) -> Iterator[Finding]:
    """Say whether checkpointd starts before the kubelet; ``kubelet`` is its unit, "" if unknown."""
    if kubelet and kubelet not in before:
        yield warning(
            "unit",
            f"the kubelet runs in {kubelet}, before which {UNIT} is not ordered",
            "at boot the kubelet may start before the copies are in place",
            f"systemctl edit {STARTED}: [Unit] Before={kubelet}",
        )
    elif kubelet:
        yield good("unit", f"it starts before {kubelet}")


def writes(directory: str, writable: tuple[str, ...]) -> Iterator[Finding]:
    """Say whether the unit may write where the kubelet looks for static pods."""
    roots = [Path(path.lstrip("-+")) for path in writable]
    parents = (Path(directory), *Path(directory).parents)
    if not any(root in parents for root in roots):
        yield warning(
            "unit",
            f"{UNIT} may not write below {directory}",
            "no copy can be placed",
            f"systemctl edit checkpointd: [Service] ReadWritePaths=-{Path(directory).parent}",
        )


def _kubelets_unit(scene: Scene) -> str:
    """Return the unit in whose cgroup the kubelet is, "" where that is not known."""
    if scene.kubelet is None:
        return ""
    try:
        cgroup = (scene.paths.proc / str(scene.kubelet.pid) / "cgroup").read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
    parts = [part for line in cgroup.splitlines() for part in line.split("/")]
    return next((part for part in parts if part.endswith(".service")), "")


def _ask(socket: Path, unit: str, interface: str, name: str) -> pid1.Value:
    return pid1.read_property(socket, SECONDS, pid1.of_unit(unit, interface, name))


def _texts(value: pid1.Value) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else ()
