"""Look at the kubelet and the runtime: where they are, whether they answer, and to whom."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

from checkpointd.cli.examine.finding import Finding, fault, good, note, unknown, warning
from checkpointd.cli.examine.scene import Scene
from checkpointd.clients import pod_resources
from checkpointd.clients.cri.client import CriClient
from checkpointd.errors import SourceError
from checkpointd.observe.kubelet import ClientFinder, Clients
from checkpointd.observe.places import Origin, Place

SECONDS = 3.0
"""Seconds for one question."""
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_NO_COPY = "no copy can start"


def examine_kubelet(scene: Scene) -> Iterator[Finding]:
    """Say where the kubelet has its things, and whether it answers."""
    yield from _process(scene)
    yield from _name(scene)
    yield from _manifest_dir(scene)
    yield from _place(scene, "root directory", scene.place("root_dir"))
    if scene.kubelet is not None:
        finder = ClientFinder(
            scene.settings.kubelet,
            lambda: scene.kubelet,
            scene.credentials_or_none,
            timeout=SECONDS,
        )
        clients = finder()
        if clients is not None:
            yield from _answers(clients)


def examine_runtime(scene: Scene) -> Iterator[Finding]:
    """Say whether the container runtime answers."""
    place = scene.place("cri_socket")
    costs = "it is not known what runs, and no copy is stopped or replaced"
    try:
        client = CriClient(place.value, timeout=SECONDS)
        try:
            version = client.version()
        finally:
            client.close()
    except SourceError as error:
        yield warning("runtime", f"{place}: {error}", costs, "is it running? [kubelet] cri-socket")
    else:
        yield good("runtime", f"{version} ({version.api}) at {place}")


def _process(scene: Scene) -> Iterator[Finding]:
    kubelet = scene.kubelet
    if scene.kubelet_problem:
        yield unknown("kubelet", scene.kubelet_problem, "run this as root, on the node itself")
    elif kubelet is None:
        yield warning(
            "kubelet",
            "no kubelet process",
            "manifests are placed, nobody starts them",
            "systemctl status kubelet; a kubelet inside another program: set all of [kubelet]",
        )
    else:
        ports = (
            f"port {kubelet.port}, healthz {kubelet.healthz_port}, "
            f"read-only {kubelet.read_only_port or 'none'}"
        )
        yield good("kubelet", f"process {kubelet.pid}, {ports}")


def _name(scene: Scene) -> Iterator[Finding]:
    name = scene.node_name
    if not name.value:
        yield unknown("node name", "not known while no kubelet runs", "or set [node] name")
        return
    yield good("node name", str(name))
    told = scene.kubelet.node_name if scene.kubelet is not None else ""
    if told and told != name.value:
        yield warning(
            "node name",
            f"the kubelet calls itself {told}",
            "the pods of another node are looked at",
            "correct [node] name, or leave it out",
        )


def _manifest_dir(scene: Scene) -> Iterator[Finding]:
    place, kubelet = scene.place("manifest_dir"), scene.kubelet
    remedy = "set staticPodPath in the kubelet's configuration (kubeadm: /etc/kubernetes/manifests)"
    if kubelet is not None and not kubelet.manifest_dir:
        yield fault("static pods", "the kubelet has no static-pod directory", _NO_COPY, remedy)
        return
    if kubelet is not None and place.origin is Origin.SET and place.value != kubelet.manifest_dir:
        yield fault(
            "static pods",
            f"copies are placed in {place.value}, but the kubelet reads {kubelet.manifest_dir}",
            _NO_COPY,
            "correct [kubelet] manifest-dir, or leave it out",
        )
    yield from directory("static pods", place)


def directory(subject: str, place: Place) -> Iterator[Finding]:
    """Say what the static-pod directory is."""
    path = Path(place.value)
    try:
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            yield note(subject, f"{path} is a link to {path.resolve()}")
            status = path.stat()
    except FileNotFoundError:
        yield note(subject, f"{place} does not exist: it is made when the first copy is placed")
        return
    except OSError as error:
        yield unknown(subject, f"{place}: {error.strerror}", "run this as root")
        return
    if not stat.S_ISDIR(status.st_mode):
        yield fault(subject, f"{place} is no directory", _NO_COPY, "set staticPodPath to one")
    elif status.st_mode & OTHERS_WRITE or status.st_uid != 0:
        yield warning(
            subject,
            f"{place} may be written by others than root ({stat.filemode(status.st_mode)}, "
            f"uid {status.st_uid})",
            "who can write there has the whole node",
            f"chown root {path}; chmod 0700 {path}",
        )
    else:
        yield good(subject, str(place))


def _place(scene: Scene, subject: str, place: Place) -> Iterator[Finding]:
    try:
        Path(place.value).stat()
    except FileNotFoundError:
        if scene.kubelet is not None:
            costs = "the files of volumes are not found: nothing is stored"
            yield warning(subject, f"{place} does not exist", costs, "set [kubelet] root-dir")
        else:
            yield note(subject, f"{place} does not exist")
    except OSError as error:
        yield unknown(subject, f"{place}: {error.strerror}", "run this as root")
    else:
        yield good(subject, str(place))


def _answers(clients: Clients) -> Iterator[Finding]:
    """Ask each of the kubelet's ways once, as the daemon does."""
    lists = 0
    try:
        clients.http.check_healthz()
        yield good("healthz", f"port {clients.http.endpoints.healthz_port} answers")
    except SourceError as error:
        yield unknown("healthz", str(error))
    path = pod_resources.socket_path(clients.http.endpoints.root_dir)
    try:
        yield good("pod-resources", f"{path} lists {len(clients.pod_resources.list_pods())} pods")
        lists += 1
    except SourceError as error:
        yield note("pod-resources", f"{path}: {error}")
    finally:
        clients.pod_resources.close()
    try:
        pods = clients.http.list_pods()
        yield good("secure port", f"{clients.http.endpoints.port} lists {len(pods)} pods")
        lists += 1
    except SourceError as error:
        # What a denial costs is told among the permissions.
        yield note("secure port", str(error))
    if not lists:
        yield warning(
            "kubelet's list",
            "neither the pod-resources socket nor the secure port gives one",
            "it is not known which pods the kubelet restarts by itself: most copies do not start",
            "checkpointd doctor --rbac, or find out why the socket does not answer",
        )
