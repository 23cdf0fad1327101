"""Say of a pod what the kubelet would write into its status."""

from __future__ import annotations

import http.client
import socket
import ssl
import time

from tests.fakes.api_objects import Object
from tests.fakes.machine.control import Fields
from tests.fakes.machine.pod_worker import Picture, Worker
from tests.fakes.machine.static_pods import Pod

HOST_IP = "127.0.0.1"


def status_of(worker: Worker, picture: Picture) -> Object:
    """Return phase, conditions and container statuses."""
    if worker.rejected:
        return {"phase": "Failed", "reason": worker.rejected, "message": "Pod was rejected"}
    spec = worker.pod["spec"]
    inits = spec.get("initContainers", [])
    statuses = [_container(worker, c, picture) for c in spec["containers"]]
    ready = bool(statuses) and all(status["ready"] for status in statuses)
    conditions = [
        {"type": "PodScheduled", "status": "True"},
        {"type": "Initialized", "status": "True"},
        {"type": "ContainersReady", "status": "True" if ready else "False"},
        {"type": "Ready", "status": "True" if ready else "False"},
    ]
    return {
        "phase": _phase(worker, picture),
        "conditions": conditions,
        "hostIP": HOST_IP,
        # There are no networks without root: all pods are on the host's.
        "podIP": HOST_IP,
        "podIPs": [{"ip": HOST_IP}],
        "startTime": _wall(worker.began),
        "containerStatuses": statuses,
        "initContainerStatuses": [_container(worker, c, picture) for c in inits],
        "qosClass": "BestEffort",
    }


def is_ready(container: Fields, spec: Pod) -> bool:
    """Probe a running container (httpGet, tcpSocket); without a probe it is ready."""
    probe = spec.get("readinessProbe")
    if not container["running"] or probe is None:
        return bool(container["running"])
    action = probe.get("httpGet") or probe["tcpSocket"]
    port = action["port"]
    if isinstance(port, str):
        port = next(p["containerPort"] for p in spec["ports"] if p["name"] == port)
    try:
        if "httpGet" in probe:
            return _get(port, action.get("path", "/"), action.get("scheme", "HTTP"))
        socket.create_connection(("127.0.0.1", port), 1).close()
    except (OSError, http.client.HTTPException):
        return False
    return True


def _get(port: int, path: str, scheme: str) -> bool:
    if scheme == "HTTPS":
        # The kubelet verifies no certificate of a probe: pkg/probe/http/http.go.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            "127.0.0.1", port, timeout=1, context=context
        )
    else:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
    try:
        connection.request("GET", path)
        return 200 <= connection.getresponse().status < 400
    finally:
        connection.close()


def _container(worker: Worker, spec: Pod, picture: Picture) -> Object:
    """Say of a container what it is and what it was before, as K:kubelet_pods.go does."""
    status: Object = {
        "name": spec["name"],
        "image": spec["image"],
        "ready": False,
        "restartCount": 0,
        "state": {"waiting": {"reason": "ContainerCreating"}},
        "lastState": {},
    }
    known = picture.of(spec["name"])
    if not known or known[0]["created"]:
        return status
    found, before = known[0], known[1:]
    status["restartCount"] = found["attempt"]
    status["imageID"] = found["image"]
    status["containerID"] = f"containerd://{found['id']}"
    status["ready"] = worker.tools.is_ready(found, spec)
    status["started"] = found["running"]
    status["lastState"] = _ended(before[0]) if before else {}
    if found["running"]:
        status["state"] = {"running": {"startedAt": _wall(found["started"])}}
    elif worker.is_backing_off(spec["name"]):
        status["state"] = {"waiting": {"reason": "CrashLoopBackOff"}}
        status["lastState"] = _ended(found)
    else:
        status["state"] = _ended(found)
    return status


def _ended(found: Fields) -> Object:
    return {
        "terminated": {
            "exitCode": found["exit_code"] or 0,
            "reason": "Error" if found["exit_code"] else "Completed",
            "startedAt": _wall(found["started"]),
            "finishedAt": _wall(found["finished"]),
            "containerID": f"containerd://{found['id']}",
        }
    }


def _phase(worker: Worker, picture: Picture) -> str:
    spec = worker.pod["spec"]
    found = [picture.newest(c["name"]) for c in spec["containers"]]
    if any(one is None for one in found):
        return "Pending"
    ended = [one for one in found if one is not None and not one["running"]]
    if len(ended) == len(found) and spec.get("restartPolicy", "Always") != "Always":
        return "Failed" if any(one["exit_code"] for one in ended) else "Succeeded"
    return "Running"


def _wall(seconds: float) -> str:
    """Write a time as the API does: whole seconds, the rest cut off."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
