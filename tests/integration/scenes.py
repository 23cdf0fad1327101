"""Set the scenes of the integration tests: a stored checkpoint, and what to wait for."""

from __future__ import annotations

import hashlib
import json
import os
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.fakes import workloads
from tests.fakes.api_client import ApiError
from tests.fakes.api_objects import Object
from tests.fakes.machine.control import Fields
from tests.fakes.node import Node
from tests.fakes.waiting import NotYetError, wait_for

SITE = "a page that was there before\n"
KEY = b"no log may ever say this: 5f3759df\n"


def start(node: Node) -> None:
    """Start a node whose API server stands elsewhere, with what the web pods need."""
    start_without_daemon(node)
    node.start_daemon()


def start_without_daemon(node: Node) -> None:
    """Do the same, but for the daemon."""
    node.api_server.start()
    node.api.create(workloads.CONFIG_MAPS, workloads.config_map("site", {"index.html": SITE}))
    node.api.create(workloads.SECRETS, workloads.secret("keys", {"key": KEY}))
    node.boot(daemon=False)


def shareable(port: int) -> Object:
    """Return the spec of a pod beside which a copy may run."""
    return workloads.web_spec(port, "--reuse-port", host_network=False)


def exclusive(port: int) -> Object:
    """Return the spec of a pod on the host's network: one at a time."""
    return workloads.web_spec(port)


def blocking(port: int) -> Object:
    """Return the spec of a pod with a hostPort: a copy keeps the kubelet from admitting it."""
    spec = workloads.web_spec(port, host_network=False)
    spec["containers"][0]["ports"] = [{"containerPort": port, "hostPort": port}]
    return spec


def create_pod(node: Node, name: str, spec: Object, *, owner: Object | None = None) -> Object:
    """Create a marked pod on the node; one without controller where no owner is given."""
    return node.api.create(workloads.PODS, workloads.pod(name, node.name, spec, owner=owner))


def create_daemon_set(node: Node, name: str, spec: Object) -> Object:
    """Create a DaemonSet of marked pods, and start the controllers that follow it."""
    made = node.api.create(workloads.DAEMON_SETS, workloads.daemon_set(name, spec))
    node.start_controllers()
    return made


def store_pod(node: Node, name: str, spec: Object) -> Object:
    """Create a pod and wait until its checkpoint is stored."""
    made = create_pod(node, name, spec)
    wait_until_stored(node, f"pod.{name}")
    return made


def store_daemon_set(node: Node, name: str, spec: Object) -> Object:
    """Create a DaemonSet and wait until the checkpoint of its pod is stored."""
    made = create_daemon_set(node, name, spec)
    wait_until_stored(node, f"ds.{name}")
    return made


def wait_until_stored(node: Node, slot: str) -> None:
    """Wait until a generation of the slot is stored and the parent runs."""

    def is_stored() -> bool:
        checkpoint = node.checkpoint(slot)
        return checkpoint["generation"] is not None and answer(checkpoint, "parent") == "yes"

    wait_for(f"{slot} is stored", is_stored)


def wait_for_phase(node: Node, slot: str, phase: str, seconds: float = 40.0) -> Fields:
    """Wait until the slot is in a phase, and return what is said of it."""

    def found() -> Fields:
        checkpoint = node.checkpoint(slot)
        if checkpoint["phase"] != phase:
            raise NotYetError(f"{checkpoint['phase']}: {checkpoint['sentence']}")
        return checkpoint

    return wait_for(f"{slot} is {phase}", found, seconds)


def wait_until_forgotten(node: Node, slot: str) -> None:
    """Wait until nothing of a slot is left: not in the status, not in the store."""

    def is_gone() -> bool:
        return not any(c["slot"] == slot for c in node.status()["checkpoints"])

    wait_for(f"{slot} is forgotten", is_gone)
    assert not list(node.layout.state.glob(f"checkpoints/*/{slot}"))
    assert not node.manifests()


def wait_for_api(node: Node, state: str) -> None:
    """Wait until the daemon says so of the API server ("trusted", "unknown")."""

    def has_state() -> bool:
        found = node.status()["api"]["state"]
        if found != state:
            raise NotYetError(found)
        return True

    wait_for(f"the API server is {state} to the daemon", has_state)


def answer(checkpoint: Fields, question: str) -> str:
    """Return the answer to the question of the table in which that word stands first."""
    found = (e["answer"] for e in checkpoint["evidence"] if question in e["question"])
    return str(next(found, ""))


def answer_of(node: Node, slot: str, question: str) -> str:
    """Return the present answer to a question of the table."""
    return answer(node.checkpoint(slot), question)


def alarms(node: Node) -> list[str]:
    """Return all alarms in the status."""
    status = node.status()
    of_slots = [alarm for checkpoint in status["checkpoints"] for alarm in checkpoint["alarms"]]
    return [*status["alarms"], *of_slots]


def slots_on_disk(node: Node) -> list[str]:
    """Return the slots that the store has."""
    return sorted(path.name for path in node.layout.state.glob("checkpoints/*/*"))


def lose_api(node: Node) -> None:
    """Let the API server go, and wait until the daemon knows."""
    node.api_server.stop()
    wait_for_api(node, "unknown")


def restart_kubelet_offline(node: Node) -> None:
    """Let the kubelet forget its pods: it starts anew while no API server answers."""
    node.kill_kubelet()
    node.start_kubelet()


def kill_program(node: Node, uid: str, name: str = "web") -> None:
    """Kill a pod's program, and wait until it has left its cgroup."""
    pid = node.find_process(uid, name)
    os.kill(pid, 9)

    def is_gone() -> bool:
        with suppress(NotYetError):
            return node.find_process(uid, name) != pid
        return True

    wait_for("the program has ended", is_gone)


def activate(node: Node, uid: str, *, slot: str = "pod.web") -> str:
    """Let kubelet and API server forget the pod, end it, and return the UID of its copy."""
    lose_api(node)
    restart_kubelet_offline(node)
    kill_program(node, uid)
    wait_for("the copy is offered", node.manifests)
    copy = copy_uid(node)
    wait_for("the copy runs", lambda: runs(node, copy))
    wait_for_phase(node, slot, "serving")
    return copy


def wait_until_quiet(node: Node) -> None:
    """Wait until the store has not changed for a second."""
    quiet_since = time.monotonic()
    before = photograph(node.layout.state)

    def is_quiet() -> bool:
        nonlocal quiet_since, before
        now = photograph(node.layout.state)
        if now != before:
            quiet_since, before = time.monotonic(), now
        return time.monotonic() - quiet_since > 1

    wait_for("the store rests", is_quiet, every=0.1)


def serves(port: int) -> Callable[[], bool]:
    """Return a condition: the web pod answers with its page."""

    def ask() -> bool:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/index.html", timeout=2) as response:
            return bool(response.read() == SITE.encode())

    return ask


def copy_uid(node: Node) -> str:
    """Return the UID of the one copy whose manifest is in place."""
    (manifest,) = node.manifests()
    return str(json.loads(manifest.read_text())["metadata"]["uid"])


def runs(node: Node, uid: str, name: str = "web") -> bool:
    """Tell whether a pod's program runs."""
    try:
        return node.find_process(uid, name) > 0
    except NotYetError:
        return False


def find_pod(node: Node, name: str) -> Object | None:
    """Return a pod of the API, None where there is none."""
    try:
        return node.api.get(f"{workloads.PODS}/{name}")
    except ApiError as error:
        if error.status != 404:
            raise
        return None


def photograph(*directories: Path) -> dict[str, tuple[str, int, int]]:
    """Return content, inode and time of change of every file below, but for the lock."""
    found: dict[str, tuple[str, int, int]] = {}
    for directory in directories:
        for path in sorted(directory.rglob("*")):
            if path.is_symlink() or not path.is_file() or path.name == "lock":
                continue
            status = path.stat()
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            found[str(path)] = (digest, status.st_ino, status.st_mtime_ns)
    return found
