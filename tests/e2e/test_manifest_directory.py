"""The static-pod directory is removed, replaced, linked, its files are edited: said, and mended.

No step starts the daemon anew, and nothing that is not a copy's is touched.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Generator, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.conftest import MakeMachine
from tests.e2e.node import daemon, measure, objects, standalone, webs
from tests.e2e.node.cluster import MANIFESTS
from tests.e2e.node.standalone import Standalone
from tests.e2e.node.waiting import NotYetError, wait_for
from tests.fakes.directory_watch import ManifestWatch

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

SHARED, HOST = "shared", "host"
NAMES = (SHARED, HOST)
STRANGER = f"{MANIFESTS}/stranger.yaml"
STRANGERS = """apiVersion: v1
kind: Pod
metadata: {name: stranger, namespace: kube-system}
spec:
  hostNetwork: true
  containers:
  - {name: s, image: "registry.local/busybox:1", command: [sleep, "100000"]}
"""
KUBELET = "/etc/systemd/system/kubelet.service"


@pytest.fixture(scope="module")
def node(make_shared_machine: MakeMachine, tmp_path_factory: pytest.TempPathFactory) -> Standalone:
    """The node, with two pods stored and a foreign static pod."""
    machine = make_shared_machine("directory", "10.99.0.1/24")
    made = standalone.make_standalone(
        machine, tmp_path_factory.mktemp("directory") / "pki", {"retire-store": '"10m"'}
    )
    # The kubelet's watch stays with a directory that is moved away: let it look often.
    machine.sh(f"sed -i '/^ExecStart=/s/$/ --file-check-frequency=1s/' {KUBELET}")
    machine.sh("systemctl daemon-reload && systemctl restart kubelet")
    webs.create(made, SHARED, 8080)
    webs.create(made, HOST, 8081, host_network=True)
    for name in NAMES:
        wait_for(f"{name} is stored", partial(webs.is_stored, made, name), 60)
    return made


@pytest.fixture(autouse=True)
def plain_directory(node: Standalone) -> Iterator[None]:
    """Have a plain directory with a stranger's manifest, and the same daemon all the time."""
    node.machine.write(STRANGER, STRANGERS)
    pid = node.main_pid
    yield
    node.machine.sh(f"[ -L {MANIFESTS} -o -f {MANIFESTS} ] && rm {MANIFESTS}; mkdir -p {MANIFESTS}")
    assert node.main_pid == pid
    log = node.journal()
    assert "Traceback" not in log


@contextlib.contextmanager
def outage(node: Standalone) -> Generator[None]:
    """Delete both pods and have no API server, until the end."""
    webs.delete_pods(node, NAMES)
    node.stop_api()
    try:
        yield
    finally:
        node.start_api()
        node.start_controllers()


def notes_of_links(node: Standalone) -> list[object]:
    """Return what the status notes of a static-pod directory that is a link."""
    notes = objects.items(node.daemon.status(), "notes")
    return [note for note in notes if "link to /etc/kubernetes/away" in str(note)]


def test_d14_whatever_takes_the_directorys_place_is_named_with_its_remedy(
    node: Standalone,
) -> None:
    sh = node.machine.sh
    sh(f"mv {MANIFESTS} /etc/kubernetes/away")
    node.wait_for_alarm("no static-pod directory", f"mkdir -m 0700 {MANIFESTS}")
    sh(f"ln -s /etc/kubernetes/nowhere {MANIFESTS}")
    node.wait_for_alarm("link to /etc/kubernetes/nowhere, which is not there", "mkdir")
    sh(f"rm {MANIFESTS}; touch {MANIFESTS}")
    node.wait_for_alarm("is no directory", "staticPodPath")
    sh(f"rm {MANIFESTS}; ln -s /etc/kubernetes/away {MANIFESTS}")
    node.wait_until_well()
    assert notes_of_links(node)
    assert "copies are placed there" in sh("checkpointd status", check=False)
    sh(f"rm {MANIFESTS}; mv /etc/kubernetes/away {MANIFESTS}")
    wait_for("no note of it is left", lambda: not notes_of_links(node), 10, 0.5)
    assert node.machine.path(STRANGER).read_text() == STRANGERS


def test_d14_a_copy_that_is_due_is_placed_as_soon_as_it_can_be(node: Standalone) -> None:
    sh = node.machine.sh
    sh(f"rm {STRANGER}; rmdir {MANIFESTS}; mkdir -m 0700 /srv/manifests")
    sh(f"ln -s /srv/manifests {MANIFESTS}")
    with outage(node):
        node.wait_for_alarm(f"ds.{SHARED}", "may not write there", "ReadWritePaths=/srv/manifests")
        sh(f"rm {MANIFESTS}; ln -s /etc/kubernetes/nowhere {MANIFESTS}")
        node.wait_for_alarm(f"ds.{SHARED}", "link to /etc/kubernetes/nowhere", "make it")
        sh(f"rm {MANIFESTS}; touch {MANIFESTS}")
        node.wait_for_alarm(f"ds.{SHARED}", "not a directory", "staticPodPath")
        sh(f"rm {MANIFESTS}")  # an absent one is made
        for name in NAMES:
            wait_for(f"{name}'s copy serves", partial(webs.is_serving, node, name), 60)
        node.wait_until_well()
        assert node.machine.path(MANIFESTS).stat().st_mode & 0o777 == 0o700
    wait_until_handed_back(node)


def test_edits_by_hand_are_left_and_named_and_end_with_the_copy(node: Standalone) -> None:
    with (
        outage(node),
        ManifestWatch() as watch,
    ):
        for name in NAMES:
            wait_for(f"{name}'s copy serves", partial(webs.is_serving, node, name), 60)
        watch.add(node.machine.path(MANIFESTS))
        shared, host = manifest(node, SHARED), manifest(node, HOST)
        placed = {path: path.read_bytes() for path in (shared, host)}

        # Removed, one after the other and all with the directory: the same bytes are back.
        shared.unlink()
        wait_for("it is put back", partial(holds, shared, placed[shared]), 10)
        node.machine.sh(f"mv {MANIFESTS} /root/old && mkdir -m 0700 {MANIFESTS}")
        for path, content in placed.items():
            wait_for("it is put back", partial(holds, path, content), 10)
        node.machine.sh(f"cp -a /root/old/stranger.yaml {STRANGER}")
        watch.add(node.machine.path(MANIFESTS))

        # Another manifest of the same pod: the kubelet takes the last one.
        twin = node.machine.path(f"{MANIFESTS}/aaa.json")
        put(twin, edited(placed[shared], {"uid": "0123abcd"}, annotated=False))
        node.wait_for_alarm("aaa.json has the same pod name", "move it away")
        assert twin.exists()
        twin.unlink()

        # An edit, and its undoing.
        put(shared, edited(placed[shared], {"labels": {"k8s-app": "mine"}}, annotated=True))
        edit = shared.read_bytes()
        node.wait_for_alarm(shared.name, "edited by hand", "remove the file")
        assert shared.read_bytes() == edit
        shared.unlink()
        wait_for("it is put back", partial(holds, shared, placed[shared]), 10)

        # Edits that nobody would know as ours, until the end.
        put(host, edited(placed[host], {}, annotated=False))
        node.wait_for_alarm(host.name, "edited by hand", "removed when the copy steps aside")
        put(shared, b'{"kind": "Pod", "metadata": {"name": "vim"}}')
        node.wait_for_alarm(shared.name, "another pod, default/vim", "Move it away")
        shared.rename(node.machine.path("/root/vim"))
        wait_for("it is put back", partial(holds, shared, placed[shared]), 10)
        for name in NAMES:
            wait_for(f"{name}'s copy serves", partial(webs.runs, node, name), 60)
    wait_until_handed_back(node)
    assert watch.faults == []
    assert node.machine.path(STRANGER).read_text() == STRANGERS


def test_a_directory_that_stays_away_is_made_again_for_the_copies(node: Standalone) -> None:
    with outage(node):
        for name in NAMES:
            wait_for(f"{name}'s copy serves", partial(webs.is_serving, node, name), 60)
        placed = {path: path.read_bytes() for path in map(partial(manifest, node), NAMES)}
        node.machine.sh(f"mv {MANIFESTS} /root/gone")
        gone = measure.now()
        node.wait_for_alarm("no static-pod directory", f"mkdir -m 0700 {MANIFESTS}")
        for path, content in placed.items():
            wait_for("it is put back", partial(holds, path, content), 45)
        assert measure.now() - gone > 15, "whoever replaces the directory has some seconds"
        for name in NAMES:
            wait_for(f"{name}'s copy serves", partial(webs.runs, node, name), 60)
        node.wait_until_well()
    wait_until_handed_back(node)


# ---- manifests -----------------------------------------------------------------------------------
def manifest(node: Standalone, name: str) -> Path:
    """Return the active manifest of a slot."""
    file = objects.text(webs.state(node, name), "activation", "file")
    return node.machine.path(f"{MANIFESTS}/{file}")


def edited(content: bytes, metadata: dict[str, object], *, annotated: bool) -> bytes:
    """Return a manifest with other metadata, as an operator might write it."""
    pod = json.loads(content)
    pod["metadata"] |= metadata
    if not annotated:
        del pod["metadata"]["annotations"]
    return json.dumps(pod, indent=2).encode()


def holds(path: Path, content: bytes) -> bool:
    """Say whether a file is there with that content."""
    return path.read_bytes() == content


def put(path: Path, content: bytes) -> None:
    """Write a file as a careful editor does."""
    new = path.with_name(f".{path.name}.swp")
    new.write_bytes(content)
    new.rename(path)


def wait_until_handed_back(node: Standalone) -> None:
    """Return when both pods run, no copy is left, and there is nothing to complain of."""
    for name in NAMES:
        wait_for(f"{name} is handed back", partial(webs.is_stored, node, name), 120)
    wait_for("no manifest is left", lambda: is_empty(node), 10)
    node.wait_until_well()


def is_empty(node: Standalone) -> bool:
    """Say whether nothing of ours lies in the directory."""
    names = [path.name for path in node.machine.path(MANIFESTS).iterdir()]
    ours = [name for name in names if name.startswith((daemon.COPY_PREFIX, ".checkpointd-"))]
    if ours:
        raise NotYetError(str(ours))
    return True
