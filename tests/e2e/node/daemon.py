"""checkpointd on a machine, as an operator has it: installed, enabled, asked for its status."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.e2e.node import objects
from tests.e2e.node.cluster import MANIFESTS, start_units
from tests.e2e.node.machine import Machine
from tests.e2e.node.waiting import NotYetError, wait_for

REPOSITORY = Path(__file__).parents[3]
STORE = "/var/lib/checkpointd"
CHECKPOINTS = f"{STORE}/checkpoints"
SETTINGS = "/etc/checkpointd/checkpointd.toml.d"
PATHS = {"boot-id": '"/run/boot-id"'}  # see node/files/node-setup
COPY_PREFIX = "checkpointd."  # of a copy's manifest in the static-pod directory


class Daemon:
    """The daemon of one machine."""

    def __init__(self, machine: Machine) -> None:
        """Look after the daemon of a running machine; install() puts it there."""
        self.machine = machine

    def install(self, settings: Mapping[str, Mapping[str, str]] | None = None) -> None:
        """Install from this work tree with `make install`, and start it now and at each boot.

        `settings` are sections of the configuration with their options, values as TOML.
        """
        subprocess.run(
            ["make", "-s", "-C", REPOSITORY, "install", f"DESTDIR={self.machine.path('/')}"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        lines: list[str] = []
        for section, options in {**(settings or {}), "paths": PATHS}.items():
            lines += [f"[{section}]", *(f"{key} = {value}" for key, value in options.items())]
        self.machine.write(f"{SETTINGS}/test.toml", "\n".join(lines) + "\n")
        start_units(self.machine, "checkpointd")

    def status(self) -> object:
        """Return `checkpointd status --json`, which works without the daemon too."""
        printed = self.machine.sh("checkpointd status --json", check=False)
        try:
            status: object = json.loads(printed)
        except json.JSONDecodeError as error:
            raise NotYetError(f"no JSON: {printed[:500]}") from error
        return status

    def checkpoint(self, slot: str) -> object | None:
        """Return what the status says of one slot of kube-system, if it is there."""
        for checkpoint in objects.items(self.status(), "checkpoints"):
            if objects.find(checkpoint, "slot") == slot:
                return checkpoint
        return None

    def wait_for_checkpoint(
        self, slot: str, what: str, holds: Callable[[object], bool], timeout: float
    ) -> object:
        """Return the slot's status once something holds of it."""

        def condition() -> object | None:
            checkpoint = self.checkpoint(slot)
            if checkpoint is None:
                raise NotYetError(f"status: {objects.find(self.status(), 'summary')}")
            if not holds(checkpoint):
                said = {
                    key: objects.find(checkpoint, key)
                    for key in ("phase", "sentence", "parent", "successor", "serves_api", "alarms")
                }
                raise NotYetError(str(said))
            return checkpoint

        return wait_for(f"checkpoint {slot}: {what}", condition, timeout, 0.2)

    def wait_until_stored(self, slot: str, parent: object, timeout: float) -> object:
        """Return the slot's status once that pod of the API is its parent and no copy is active."""
        name = objects.text(parent, "metadata", "name")
        return self.wait_for_checkpoint(
            slot,
            f"{name} is the parent and no copy is active",
            lambda seen: is_stored(seen) and is_parent(seen, parent),
            timeout,
        )

    def wait_for_kubelet(self, timeout: float) -> None:
        """Return when the daemon has had an answer of the kubelet that runs now."""
        pid = int(self.machine.unit_property("kubelet", "MainPID"))

        def condition() -> bool:
            kubelet = objects.find(self.status(), "kubelet")
            if (objects.find(kubelet, "pid"), objects.find(kubelet, "answers")) != (pid, "yes"):
                raise NotYetError(str(kubelet))
            return True

        wait_for(f"the daemon sees kubelet {pid} answer", condition, timeout, 0.2)

    def wait_for_api(self, state: str, timeout: float) -> None:
        """Return when the daemon says so of the API server, as in "trusted" or "unknown"."""

        def condition() -> bool:
            found = objects.find(self.status(), "api", "state")
            if found != state:
                raise NotYetError(str(found))
            return True

        wait_for(f"API server {state}", condition, timeout, 0.2)

    def sees_kubelet(self) -> bool:
        """Say whether the daemon knows of a kubelet that runs."""
        return objects.find(self.status(), "kubelet", "present") == "yes"

    def copies(self) -> list[str]:
        """Return the names of the copies' manifests in the static-pod directory."""
        return sorted(
            path.name
            for path in self.machine.path(MANIFESTS).iterdir()
            if path.name.startswith(COPY_PREFIX)
        )

    def stored(self, slot: str) -> list[str]:
        """Return all files of a slot of kube-system in the store, by path below the slot."""
        top = self.machine.path(f"{CHECKPOINTS}/kube-system/{slot}")
        if not top.is_dir():
            return []
        return sorted(str(path.relative_to(top)) for path in top.rglob("*"))


def is_parent(checkpoint: object, pod: object) -> bool:
    """Say whether a slot's parent is that pod of the API."""
    return objects.find(checkpoint, "parent", "uid") == objects.find(pod, "metadata", "uid")


def is_stored(checkpoint: object) -> bool:
    """Say whether a slot has a generation to be activated, and none is active."""
    return (
        objects.find(checkpoint, "phase") == "stored"
        and objects.find(checkpoint, "generation", "hash") is not None
    )


def answer(checkpoint: object, question: str) -> str:
    """Return the daemon's answer to one question about a slot, then its witnesses' words."""
    for evidence in objects.items(checkpoint, "evidence"):
        if objects.find(evidence, "question") == question:
            witnesses = objects.items(evidence, "witnesses")
            says = [objects.text(witness, "says") for witness in witnesses]
            return "; ".join([objects.text(evidence, "answer"), *says])
    raise NotYetError(f"no answer to {question}")


def is_forgotten(checkpoint: object) -> bool:
    """Say whether the daemon knows that a slot's pod runs, and its kubelet answers without it."""
    runs = answer(checkpoint, "does parent or successor run?")
    managed = answer(checkpoint, "will the kubelet restart it?")
    return runs.startswith("yes;") and "the kubelet has not listed it" in managed


def serves_api(checkpoint: object) -> bool:
    """Say whether the daemon has found out that the slot's pod serves the API."""
    return objects.find(checkpoint, "serves_api") is True
