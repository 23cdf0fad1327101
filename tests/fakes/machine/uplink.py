"""Connect the embedded kubelet with the API server: what it is told, and what it writes back.

Two threads, each with a client of its own. Kubelet facts K-9 (mirror pods), K-13 (the API source is
not ready until its first list, and a kubelet that started without it acts only a while later).
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from tests.fakes import api_client
from tests.fakes.api_client import FAILURES, PODS, ApiClient, ApiError
from tests.fakes.api_objects import Object
from tests.fakes.machine.static_pods import Pod

RETRY_SECONDS = 0.1
MIRROR = "kubernetes.io/config.mirror"


@dataclass(slots=True, kw_only=True)
class Server:
    """Say where the API server is and who we are."""

    port: int
    pki: Path
    node: str

    def client(self) -> ApiClient:
        """Return a new client."""
        return ApiClient(self.port, self.pki, "node")


class PodSource:
    """Keep the list of this node's API pods; ``seen`` once there was one (and has settled)."""

    def __init__(self, server: Server, settle_seconds: float, wake: Callable[[], None]) -> None:
        self._server = server
        self._settle_seconds = settle_seconds
        self._wake = wake
        self._lock = threading.Lock()
        self._pods: dict[str, Pod] = {}
        self._mirrors: dict[str, Pod] = {}
        self.seen = False

    def start(self) -> None:
        """Follow the API server in the background."""
        threading.Thread(target=self._follow, name="pod source", daemon=True).start()

    def read(self) -> tuple[dict[str, Pod], dict[str, Pod]]:
        """Return the pods by UID, and the mirror pods by namespace and name."""
        with self._lock:
            return dict(self._pods), dict(self._mirrors)

    def _follow(self) -> None:
        failed = False
        path = f"{PODS}?fieldSelector=spec.nodeName%3D{quote(self._server.node)}"
        while True:
            client = self._server.client()
            try:
                listed = client.get(path)
                if failed and not self.seen:
                    threading.Event().wait(self._settle_seconds)
                    listed = client.get(path)
                self._replace(listed["items"])
                for event in client.watch(path, listed["metadata"]["resourceVersion"]):
                    if event["type"] == "ERROR":
                        break
                    self._change(event["type"], event["object"])
            except FAILURES:
                failed = True
                threading.Event().wait(RETRY_SECONDS)
            finally:
                client.close()

    def _replace(self, pods: list[Pod] | None) -> None:
        if pods is None:
            raise ApiError(200, "a list without items")
        with self._lock:
            self._pods = {p["metadata"]["uid"]: _of_api(p) for p in pods if not is_mirror(p)}
            self._mirrors = {_name(p): p for p in pods if is_mirror(p)}
            self.seen = True
        self._wake()

    def _change(self, kind: str, pod: Pod) -> None:
        if kind not in ("ADDED", "MODIFIED", "DELETED"):
            return
        known, key = (
            (self._mirrors, _name(pod)) if is_mirror(pod) else (self._pods, pod["metadata"]["uid"])
        )
        with self._lock:
            if kind == "DELETED":
                known.pop(key, None)
            else:
                known[key] = pod if is_mirror(pod) else _of_api(pod)
        self._wake()


@dataclass(slots=True)
class Report:
    """Hold what the API server is to be told in the next round."""

    statuses: dict[str, tuple[Pod, Object]] = field(default_factory=dict[str, "tuple[Pod, Object]"])
    finished: dict[str, Pod] = field(default_factory=dict[str, Pod])
    mirrors: dict[str, Pod] = field(default_factory=dict[str, Pod])
    unwanted_mirrors: list[Pod] = field(default_factory=list["Pod"])


class Reporter:
    """Write the node, its lease, statuses, mirror pods, and the end of pods."""

    def __init__(self, server: Server, lease_seconds: float) -> None:
        self._server = server
        self._lease_seconds = lease_seconds
        self._report = Report()
        self._written: dict[str, Object] = {}
        self._lock = threading.Lock()
        self._news = threading.Event()

    def start(self) -> None:
        """Report in the background."""
        threading.Thread(target=self._loop, name="reporter", daemon=True).start()

    def tell(self, report: Report) -> None:
        """Replace what is to be told."""
        with self._lock:
            if report != self._report:
                self._report = report
                self._news.set()

    def _loop(self) -> None:
        client = self._server.client()
        node_uid, renewed = "", 0.0
        while True:
            self._news.wait(self._lease_seconds / 2)
            self._news.clear()
            try:
                node_uid = node_uid or self._register(client)
                if time.monotonic() - renewed >= self._lease_seconds:
                    self._renew(client)
                    renewed = time.monotonic()
                self._write(client, node_uid)
            except FAILURES:
                node_uid = ""
                self._news.set()
                threading.Event().wait(RETRY_SECONDS)

    def _register(self, client: ApiClient) -> str:
        name = self._server.node
        try:
            found = client.get(f"/api/v1/nodes/{name}")
        except ApiError as error:
            if error.status != 404:
                raise
            found = client.create("/api/v1/nodes", {"metadata": {"name": name}})
        return str(found["metadata"]["uid"])

    def _renew(self, client: ApiClient) -> None:
        now = time.time_ns() / 1e9
        text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1e6):06d}Z"
        path = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{self._server.node}"
        client.patch(path, {"spec": {"renewTime": text}})

    def _write(self, client: ApiClient, node_uid: str) -> None:
        with self._lock:
            report = self._report
        for uid, (pod, status) in report.statuses.items():
            if self._written.get(uid) != status:
                self._patch_status(client, pod, status)
                self._written[uid] = status
        for pod in report.finished.values():
            self._finalise(client, pod)
        for pod in report.mirrors.values():
            self._create_mirror(client, pod, node_uid)
        for pod in report.unwanted_mirrors:
            _ignoring(404, functools.partial(client.delete, _path(pod), 0))

    def _patch_status(self, client: ApiClient, pod: Pod, status: Object) -> None:
        known = self._find(client, pod)
        if known is not None and known["metadata"]["uid"] == pod["metadata"]["uid"]:
            client.patch(_path(pod) + "/status", {"status": status})

    def _finalise(self, client: ApiClient, pod: Pod) -> None:
        known = self._find(client, pod)
        if known is not None and known["metadata"]["uid"] == pod["metadata"]["uid"]:
            client.delete(_path(pod), 0)

    def _create_mirror(self, client: ApiClient, pod: Pod, node_uid: str) -> None:
        metadata = pod["metadata"]
        owner = {
            "apiVersion": "v1", "kind": "Node", "name": self._server.node, "uid": node_uid,
            "controller": True,
        }  # fmt: skip
        annotations = {**metadata["annotations"], MIRROR: metadata["uid"]}
        made = {
            "metadata": {
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "labels": metadata.get("labels", {}),
                "annotations": annotations,
                "ownerReferences": [owner],
            },
            "spec": pod["spec"],
        }
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods"
        _ignoring(409, lambda: client.create(path, made))

    @staticmethod
    def _find(client: ApiClient, pod: Pod) -> Object | None:
        try:
            return client.get(_path(pod))
        except ApiError as error:
            if error.status != 404:
                raise
            return None


def is_mirror(pod: Pod) -> bool:
    """Tell whether this is only the picture of a static pod."""
    return MIRROR in pod["metadata"].get("annotations", {})


def _of_api(pod: Pod) -> Pod:
    """Note where a pod comes from, as K:config/config.go (merge) does in the kubelet's own copy."""
    source = {
        "kubernetes.io/config.seen": "2026-01-01T00:00:00.000000000Z",
        "kubernetes.io/config.source": "api",
    }
    metadata = pod["metadata"]
    annotations = {**metadata.get("annotations", {}), **source}
    return {**pod, "metadata": {**metadata, "annotations": annotations}}


def _ignoring(status: int, call: Callable[[], object]) -> None:
    try:
        call()
    except ApiError as error:
        if error.status != status:
            raise


def _name(pod: Pod) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _path(pod: Pod) -> str:
    return api_client.pod_path(pod["metadata"]["namespace"], pod["metadata"]["name"])
