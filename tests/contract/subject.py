"""The node that the contract tests run on: an embedded one, or the real one that they are on.

Both are found as the daemon finds them: from the kubelet's process. What differs is how an
administrator changes them, and what programs their pods have.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import uuid
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import psutil

from checkpointd.clients import kube_connection, kubelet_process, proc
from checkpointd.clients.cgroups import Cgroups
from checkpointd.clients.cri.client import CriClient
from checkpointd.clients.kubeconfig import Kubeconfig
from checkpointd.clock import Clock
from checkpointd.model.observation import Container, KubeletProcess, Sandbox
from checkpointd.settings import Paths
from tests.fakes.api_client import ApiError
from tests.fakes.api_objects import Object
from tests.fakes.node import Node
from tests.fakes.waiting import NotYetError, wait_for

ADMIN = os.environ.get("CHECKPOINTD_TEST_ADMIN", "")
"""An administrator's kubeconfig on the real node that the tests run on, "" for the embedded one."""
NAMESPACE = "kube-system"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
PROC = "/proc"
ETCD = ("127.0.0.1", 2379)


@dataclass(frozen=True, slots=True)
class Answer:
    """Hold an answer of the API server as it came."""

    status: int
    content_type: str
    body: bytes

    @property
    def json(self) -> Object:
        """Return the object that it carries."""
        found: Object = json.loads(self.body)
        return found


class Api:
    """Ask the API server of a kubeconfig for anything, one connection per request."""

    def __init__(self, kubeconfig: Path) -> None:
        self._credentials = Kubeconfig(kubeconfig).read

    def ask(self, method: str, path: str, body: Object | None = None) -> Answer:
        """Send one request; any answer is one."""
        with closing(self._connect()) as connection:
            content = None if body is None else json.dumps(body).encode()
            kind = "merge-patch+json" if method == "PATCH" else "json"
            connection.request(method, path, content, {"Content-Type": f"application/{kind}"})
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers.get("Content-Type", ""), answer.read())

    def do(self, method: str, path: str, body: Object | None = None) -> Object:
        """Send one request that must succeed. Raises ApiError."""
        answer = self.ask(method, path, body)
        if answer.status >= 300:
            raise ApiError(answer.status, answer.body.decode(errors="replace"))
        return answer.json

    def find(self, path: str) -> Object | None:
        """Return an object, None where there is none."""
        answer = self.ask("GET", path)
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise ApiError(answer.status, answer.body.decode(errors="replace"))
        return answer.json

    def stream(self, path: str) -> Iterator[Object]:
        """Yield the events of a watch to its end."""
        with closing(self._connect()) as connection:
            connection.request("GET", path)
            answer = connection.getresponse()
            if answer.status != 200:
                raise ApiError(answer.status, answer.read().decode(errors="replace"))
            while line := answer.readline():
                yield json.loads(line)

    def _connect(self) -> http.client.HTTPSConnection:
        found = self._credentials()
        context = kube_connection.make_context(found)
        return http.client.HTTPSConnection(found.host, found.port, timeout=20, context=context)


class Control(Protocol):
    """Do to a node's control plane and kubelet what only its owner can."""

    def compact(self) -> None:
        """Have the API server's store forget all versions but the present one.

        Its memory of what watches may go back to is another thing: that goes with a restart.
        """
        ...

    def restart_api_server(self) -> None:
        """End the API server; return when it answers again."""
        ...

    def program(self, name: str) -> Object:
        """Return image and command of a program.

        ``obedient`` ends with 0 at TERM, ``stubborn`` ignores it, ``fails`` exits with 1 at once,
        ``finishes`` with 0.
        """
        ...

    def web(self, port: int) -> Object:
        """Return image and command of a program that listens on a port of the host."""
        ...


class EmbeddedControl:
    """The owner of an embedded node."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def compact(self) -> None:
        """Forget."""
        self._node.api_server.expire_continues()

    def restart_api_server(self) -> None:
        """Stop it and start it."""
        self._node.api_server.stop()
        self._node.api_server.start()

    def program(self, name: str) -> Object:
        """Return a program of the embedded node."""
        port = f"--port={self._node.free_port()}"
        commands = {
            "obedient": ["web", port],
            "stubborn": ["web", port, "--ignore-term"],
            "fails": ["fail"],
            "finishes": ["finish"],
        }
        return {"image": "registry.example/app:1", "command": commands[name]}

    def web(self, port: int) -> Object:
        """Return one that listens."""
        return {"image": "registry.example/app:1", "command": ["web", f"--port={port}"]}


class RealControl:
    """The owner of the node that the tests run on, with etcd and API server as its services."""

    def __init__(self, admin: Path) -> None:
        self._api = Api(admin)

    def compact(self) -> None:
        """Tell etcd, by its gateway for JSON."""
        with closing(http.client.HTTPConnection(*ETCD, timeout=10)) as connection:
            connection.request("POST", "/v3/kv/range", '{"key": "AA=="}')
            revision = json.loads(connection.getresponse().read())["header"]["revision"]
            body = json.dumps({"revision": revision, "physical": True})
            connection.request("POST", "/v3/kv/compaction", body)
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            answer.read()

    def restart_api_server(self) -> None:
        """Restart its unit."""
        subprocess.run(["systemctl", "restart", "kube-apiserver"], check=True)
        wait_for("the API server is ready", lambda: self._api.ask("GET", "/readyz").body == b"ok")

    def program(self, name: str) -> Object:
        """Return a program of busybox."""
        scripts = {
            "obedient": "trap 'exit 0' TERM; sleep 100000 & wait",
            "stubborn": "trap '' TERM; while :; do sleep 100000; done",
            "fails": "exit 1",
            "finishes": "exit 0",
        }
        return self._shell(scripts[name])

    def web(self, port: int) -> Object:
        """Return busybox's web server."""
        return self._shell(f"trap 'exit 0' TERM; httpd -f -p {port} & wait")

    @staticmethod
    def _shell(script: str) -> Object:
        return {
            "image": "registry.local/busybox:1",
            "imagePullPolicy": "IfNotPresent",
            "command": ["/bin/sh", "-c", script],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Hold a node, and what a test made on it, which goes with ``clean``."""

    is_real: bool
    paths: Paths
    kubelet: KubeletProcess
    admin: Path
    control: Control
    api: Api
    _paths: list[str] = field(default_factory=list[str])
    _files: list[Path] = field(default_factory=list[Path])

    @property
    def procfs(self) -> proc.Procfs:
        """Return what reads its processes; psutil's place is its own again with ``clean``."""
        return proc.Procfs(self.paths.proc)

    @property
    def tree(self) -> Cgroups:
        """Return what reads the cgroups."""
        return Cgroups(self.paths.cgroup, self.procfs, lambda: self.kubelet.cgroup_root)

    @property
    def node_name(self) -> str:
        """Return the Node's name."""
        return self.kubelet.node_name

    @property
    def kubeconfig(self) -> Path:
        """Return the node's own credentials."""
        return Path(self.kubelet.kubeconfig)

    @contextmanager
    def runtime(self) -> Generator[CriClient]:
        """Talk to the container runtime."""
        with closing(CriClient(self.kubelet.cri_socket)) as client:
            yield client

    # ---- what tests make ------------------------------------------------------------------------
    def container(self, program: str = "obedient", name: str = "app", **more: object) -> Object:
        """Return a container of a spec."""
        return {"name": name, **self.control.program(program), **more}

    def pod(self, *containers: Object, **spec: object) -> Object:
        """Return a pod with a name of its own; one obedient container where none is given."""
        metadata = {
            "name": f"contract-{uuid.uuid4().hex[:8]}",
            "namespace": NAMESPACE,
            "labels": {"contract": "test"},
            "annotations": {"example.org/note": "a note"},
        }
        spec = {
            "containers": list(containers) or [self.container()],
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
            **spec,
        }
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def make(self, collection: str, body: Object) -> Object:
        """Create an object that goes with the test."""
        made = self.api.do("POST", collection, body)
        self._paths.append(f"{collection}/{made['metadata']['name']}")
        return made

    def run(self, pod: Object) -> Object:
        """Create a pod that is bound to the node; return it once it is Ready."""
        bound = {**pod, "spec": {**pod["spec"], "nodeName": self.node_name}}
        made = self.make(PODS, bound)
        return self.wait_until_ready(made["metadata"]["name"])

    def wait_until_ready(self, name: str) -> Object:
        """Return a pod of the API once it is Ready."""

        def is_ready() -> Object:
            found = self.find_pod(name)
            if condition(found, "Ready") != "True":
                raise NotYetError(str((found or {}).get("status")))
            assert found is not None
            return found

        return wait_for(f"{name} is Ready", is_ready, 60)

    def find_pod(self, name: str) -> Object | None:
        """Return a pod of the API."""
        return self.api.find(f"{PODS}/{name}")

    def delete_pod(self, name: str, grace: int | None = None) -> None:
        """Ask for the end of a pod; 0 is what a kubelet says once it has ended."""
        body: Object = {} if grace is None else {"gracePeriodSeconds": grace}
        self.api.do("DELETE", f"{PODS}/{name}", body)

    def place(self, file: str, content: str | Object) -> Path:
        """Put a manifest into the kubelet's directory by rename; a dot-file stays one."""
        path = Path(self.kubelet.manifest_dir) / file
        text = content if isinstance(content, str) else json.dumps(content)
        fresh = path.with_name(f".{file}.new")
        fresh.write_text(text)
        self._files.append(path)
        fresh.rename(path)
        return path

    def fresh(self) -> Subject:
        """Return the same node with nothing made on it yet."""
        return replace(self, _paths=[], _files=[])

    def clean(self) -> None:
        """Remove what was made; what runs of it may end later."""
        for file in self._files:
            file.unlink(missing_ok=True)
        for path in reversed(self._paths):
            grace = "?gracePeriodSeconds=0" if path.startswith(PODS) else ""
            self.api.ask("DELETE", path + grace)
        self._files.clear()
        self._paths.clear()
        psutil.PROCFS_PATH = PROC

    # ---- what there is -------------------------------------------------------------------
    def sandboxes(self, uid: str = "") -> tuple[Sandbox, ...]:
        """Return a pod's sandboxes (or all), the newest first."""
        with self.runtime() as client:
            found = client.list_sandboxes(uid)
        return tuple(sorted(found, key=lambda sandbox: -sandbox.attempt))

    def containers(self, uid: str) -> tuple[Container, ...]:
        """Return a pod's containers, the newest first."""
        with self.runtime() as client:
            found = client.list_containers(uid)
        return tuple(sorted(found, key=lambda container: -container.attempt))

    def leaves(self, uid: str) -> Mapping[str, tuple[int, ...]]:
        """Return the processes of a pod by the name of their cgroup."""
        return {leaf.id: leaf.pids for leaf in self.tree.read_pod(uid).leaves}


def uid_of(pod: Object) -> str:
    """Return a pod's UID; of a mirror, that of the static pod."""
    metadata = pod["metadata"]
    return str(metadata.get("annotations", {}).get("kubernetes.io/config.mirror", metadata["uid"]))


def condition(pod: Object | None, name: str) -> str:
    """Return the status of a pod's condition, "" where it has none."""
    conditions = (pod or {}).get("status", {}).get("conditions", [])
    return next((str(one["status"]) for one in conditions if one["type"] == name), "")


def embedded_subject(node: Node) -> Subject:
    """Take an embedded node that has booted with its API server."""
    layout = node.layout
    admin = layout.root / "admin.conf"
    admin.write_bytes(node.api_server.kubeconfig(node.api_server.pki.admin))
    paths = Paths(
        proc=layout.proc,
        cgroup=layout.cgroup,
        state=layout.state,
        run=layout.volatile,
        boot_id=layout.boot_id,
        manager_socket=layout.manager,
    )
    return _subject(paths, admin, EmbeddedControl(node), is_real=False)


def real_subject() -> Subject:
    """Take the node that the tests run on."""
    admin = Path(ADMIN)
    return _subject(Paths(), admin, RealControl(admin), is_real=True)


def _subject(paths: Paths, admin: Path, control: Control, *, is_real: bool) -> Subject:
    procfs = proc.Procfs(paths.proc)
    process = procfs.find_kubelet()
    assert process is not None, "no kubelet runs"
    found = kubelet_process.read_kubelet(procfs, process, Clock().boot_id)
    psutil.PROCFS_PATH = PROC
    return Subject(
        is_real=is_real,
        paths=paths,
        kubelet=found,
        admin=admin,
        control=control,
        api=Api(admin),
    )
