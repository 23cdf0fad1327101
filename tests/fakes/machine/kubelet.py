"""Be the kubelet of an embedded node: a process with a kubelet's arguments, ports and quirks.

One loop owns all workers; threads bring it the API server's pods, the runtime's picture and the
volumes' contents, and carry away what it reports. It stops nothing whose source it has not seen
(kubelet facts K-13, K-17, K-18).

    main([real kubelet flags…, "--node-directory", DIRECTORY, "--api-port", PORT, …])
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from tests.fakes.api_server import read_pki
from tests.fakes.kubelet_http import Authorization, FakeKubelet, FakePod
from tests.fakes.machine import pod_status
from tests.fakes.machine.control import ControlServer, Fields
from tests.fakes.machine.kubelet_threads import Prober, RuntimeView, VolumeKeeper
from tests.fakes.machine.layout import Layout
from tests.fakes.machine.pod_worker import Picture, Tools, Worker, grace_of, host_ports
from tests.fakes.machine.static_pods import ManifestDirectory, Pod, full_name
from tests.fakes.machine.uplink import PodSource, Report, Reporter, Server
from tests.fakes.pod_resources import FakePodResources

LOOK_SECONDS = 0.03
"""Between two looks at the static-pod directory, where nothing wakes the loop before."""


@dataclass(slots=True, kw_only=True)
class Options:
    """Hold what the embedded kubelet is told; times are scaled down from the real one's."""

    layout: Layout
    node: str
    api_port: int
    port: int
    read_only_port: int
    healthz_port: int
    settle_seconds: float
    lease_seconds: float
    volume_seconds: float
    back_off: tuple[float, ...]


class Kubelet:
    """Run the pods of one node."""

    def __init__(self, options: Options) -> None:
        layout = options.layout
        self.options = options
        server = Server(port=options.api_port, pki=layout.pki, node=options.node)
        self._wake = threading.Event()
        self._manifests = ManifestDirectory(layout.manifests, options.node, layout.root / "lanes")
        self._source = PodSource(server, options.settle_seconds, self._wake.set)
        self._reporter = Reporter(server, options.lease_seconds)
        self._volumes = VolumeKeeper(server, layout.kubelet, options.volume_seconds, self._wake.set)
        self._runtime = RuntimeView(str(layout.containerd_control), self._wake.set)
        self._probes = Prober(self._wake.set)
        self._tools = Tools(
            runtime=str(layout.containerd_control),
            root=layout.kubelet,
            back_off=options.back_off,
            is_ready=self._probes.is_ready,
        )
        self._workers: dict[str, Worker] = {}
        self._names: dict[str, str] = {}
        """The static pod that has each full name, until it is seen to end (K-12)."""
        self._http = FakeKubelet(layout.kubelet, options.node, cluster=read_pki(layout.pki).ca)
        self._http.authorization = Authorization.FORBIDDEN
        self._pod_resources = FakePodResources(layout.kubelet)

    def run(self) -> None:
        """Serve, and look again and again."""
        self._http.port = self.options.port
        self._http.read_only_port = self.options.read_only_port
        self._http.healthz_port = self.options.healthz_port
        self._http.start(secure=True, read_only=self.options.read_only_port > 0)
        self._pod_resources.start()
        self._serve_faults().start()
        for thread in (self._source, self._reporter, self._volumes, self._runtime, self._probes):
            thread.start()
        print("serving", flush=True)
        while True:
            self._wake.wait(LOOK_SECONDS)
            self._wake.clear()
            try:
                self._look()
            except (OSError, RuntimeError) as error:
                print(f"the runtime does not do what it should: {error}", flush=True)
                threading.Event().wait(0.1)

    def _look(self) -> None:
        """Do one round: who is wanted, who ends, the next step of each, the report."""
        if not self._runtime.is_known:
            return
        static = self._manifests.look()
        api, mirrors = self._source.read()
        ready = self._source.seen
        self._add_workers(static, api)
        self._end_workers(static, api, ready=ready)
        if ready:
            self._clean_up(static, api)
        acted = [w.step(self._runtime.of(w.uid)) for w in list(self._workers.values())]
        if any(acted):
            self._runtime.refresh()
            self._wake.set()
        self._volumes.want([w for w in self._workers.values() if w.may_start])
        self._probes.watch(self._probed())
        self._reporter.tell(self._make_report(static, api, mirrors, ready=ready))
        self._show()

    # ---- workers --------------------------------------------------------------------------------
    def _add_workers(self, static: dict[str, Pod], api: dict[str, Pod]) -> None:
        for uid, pod in {**api, **static}.items():
            if set("_/") & set(uid) or ".." in uid:
                # K:cm/cgroup_manager_linux.go: NewCgroupName.
                print(f"panic: invalid character in UID {uid!r}", flush=True)
                os._exit(2)
            worker = self._workers.get(uid)
            if worker is None:
                finished = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
                if finished and uid not in static:
                    continue
                worker = Worker(pod, self._tools, uid in static)
                self._workers[uid] = worker
            elif not worker.static:
                worker.pod = pod
            if not worker.admitted and not worker.rejected:
                self._admit(worker)

    def _admit(self, worker: Worker) -> None:
        if worker.static:
            holder = self._names.setdefault(worker.full_name, worker.uid)
            if holder != worker.uid:
                return
        claimed: set[int] = set()
        for other in self._workers.values():
            if other is not worker and other.admitted and not other.finished and not other.rejected:
                claimed |= host_ports(other.pod)
        if claimed & host_ports(worker.pod):
            worker.rejected = "NodePorts"
            print(f"{worker.full_name} ({worker.uid}): rejected: NodePorts", flush=True)
        else:
            worker.admitted = True

    def _end_workers(self, static: dict[str, Pod], api: dict[str, Pod], *, ready: bool) -> None:
        for uid, worker in list(self._workers.items()):
            pod = static.get(uid) if worker.static else api.get(uid)
            if worker.finished and pod is None:
                del self._workers[uid]
                self._release(worker)
            elif pod is None and not ready:
                # Forgotten, not stopped; the name stays taken (K-17).
                del self._workers[uid]
                if not worker.admitted:
                    self._release(worker)
            elif pod is None and worker.rejected:
                del self._workers[uid]
            elif pod is None or (not worker.static and "deletionTimestamp" in pod["metadata"]):
                worker.terminate(grace_of(pod or worker.pod))

    def _release(self, worker: Worker) -> None:
        if self._names.get(worker.full_name) == worker.uid:
            del self._names[worker.full_name]

    def _clean_up(self, static: dict[str, Pod], api: dict[str, Pod]) -> None:
        """Do the housekeeping: end what nobody wants, remove what is left of it."""
        for uid in self._runtime.uids() - self._workers.keys() - static.keys() - api.keys():
            picture = self._runtime.of(uid)
            sandbox = picture.sandbox
            if sandbox is None:
                continue
            orphan = Worker(_orphan(sandbox), self._tools, static=True)
            print(f"{orphan.full_name} ({uid}): orphaned", flush=True)
            orphan.terminate(grace=2)
            self._workers[uid] = orphan
        taken = {uid for uid in self._names.values() if uid in self._workers}
        self._names = {name: uid for name, uid in self._names.items() if uid in taken}
        pods = self.options.layout.kubelet / "pods"
        for directory in pods.iterdir() if pods.is_dir() else ():
            if directory.name not in self._workers and directory.name not in self._runtime.uids():
                shutil.rmtree(directory, ignore_errors=True)

    # ---- what others see ------------------------------------------------------------------------
    def _make_report(
        self, static: dict[str, Pod], api: dict[str, Pod], mirrors: dict[str, Pod], *, ready: bool
    ) -> Report:
        report = Report()
        for uid, worker in self._workers.items():
            # Of a static pod the API has the mirror, with a UID of its own.
            known = mirrors.get(worker.full_name) if worker.static else api.get(uid)
            if known is not None and not worker.finished:
                status = pod_status.status_of(worker, self._runtime.of(uid))
                report.statuses[str(known["metadata"]["uid"])] = (known, status)
            ends = "deletionTimestamp" in worker.pod["metadata"]
            if uid in api and ends and (worker.finished or worker.rejected):
                report.finished[uid] = worker.pod
        if ready:
            wanted = {full_name(pod): pod for pod in static.values()}
            report.mirrors = {n: p for n, p in wanted.items() if n not in mirrors}
            report.unwanted_mirrors = [m for name, m in mirrors.items() if name not in wanted]
        return report

    def _probed(self) -> list[tuple[Fields, Pod]]:
        found: list[tuple[Fields, Pod]] = []
        for worker in self._workers.values():
            picture = self._runtime.of(worker.uid)
            for container in worker.pod["spec"]["containers"]:
                newest = picture.newest(container["name"])
                if newest is not None and "readinessProbe" in container:
                    found.append((newest, container))
        return found

    def _show(self) -> None:
        listed = [w for w in self._workers.values() if not (w.static and w.terminating)]
        self._pod_resources.pods = {
            (w.pod["metadata"]["namespace"], w.pod["metadata"]["name"]) for w in listed
        }
        self._http.pods = [self._listed(worker) for worker in listed]
        pictures = [self._runtime.of(uid) for uid in self._runtime.uids()]
        self._http.running = [p for picture in pictures if (p := _running(picture)) is not None]

    def _listed(self, worker: Worker) -> FakePod:
        """Return what /pods has of a pod: of a static one the live status (kubelet facts K-16)."""
        pod = {key: value for key, value in worker.pod.items() if key not in ("kind", "apiVersion")}
        if worker.static:
            pod["status"] = pod_status.status_of(worker, self._runtime.of(worker.uid))
        metadata = pod["metadata"]
        name, uid = metadata["name"], worker.uid
        return FakePod(namespace=metadata["namespace"], name=name, uid=uid, item=pod)

    def _serve_faults(self) -> ControlServer:
        def set_fault(kind: str, value: bool) -> None:
            if kind == "allow":
                allow, deny = Authorization.ALLOW, Authorization.FORBIDDEN
                self._http.authorization = allow if value else deny
            elif kind == "healthy":
                self._http.healthy = value
            elif value:
                self._pod_resources.faults.hang()
            else:
                self._pod_resources.faults.clear()

        return ControlServer(str(self.options.layout.kubelet_control), {"fault": set_fault})


def _orphan(sandbox: Fields) -> Pod:
    metadata = {key: sandbox[key] for key in ("namespace", "name", "uid", "annotations")}
    return {"metadata": metadata, "spec": {"containers": []}}


def _running(picture: Picture) -> FakePod | None:
    """Return what /runningpods/ has of a pod: one with a sandbox or a container that is up."""
    sandbox = picture.sandbox
    if sandbox is None or not (sandbox["ready"] or picture.running):
        return None
    return FakePod(
        namespace=sandbox["namespace"],
        name=sandbox["name"],
        uid=sandbox["uid"],
        containers=tuple(container["name"] for container in picture.running),
    )


def main(arguments: list[str]) -> int:
    """Run until killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--node-directory", type=Path, required=True)
    parser.add_argument("--api-port", type=int, required=True)
    parser.add_argument("--settle", type=float, default=0.5)
    parser.add_argument("--lease", type=float, default=0.5)
    parser.add_argument("--refresh", type=float, default=1.0)
    parser.add_argument("--back-off", default="0.3,2,5")
    parser.add_argument("--hostname-override", required=True)
    for flag in ("--port", "--read-only-port", "--healthz-port"):
        parser.add_argument(flag, type=int, required=True)
    options = parser.parse_args(arguments)
    Kubelet(
        Options(
            layout=Layout(options.node_directory),
            node=options.hostname_override,
            api_port=options.api_port,
            port=options.port,
            read_only_port=options.read_only_port,
            healthz_port=options.healthz_port,
            settle_seconds=options.settle,
            lease_seconds=options.lease,
            volume_seconds=options.refresh,
            back_off=tuple(float(word) for word in options.back_off.split(",")),
        )
    ).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
