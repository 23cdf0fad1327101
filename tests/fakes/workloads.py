"""Make the objects that scenarios create on the embedded node, and a self-hosted control plane."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.fakes.api_objects import Object
from tests.fakes.machine.forking import Spawn
from tests.fakes.node import Node
from tests.fakes.waiting import wait_for

NAMESPACE = "kube-system"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
SECRETS = f"/api/v1/namespaces/{NAMESPACE}/secrets"
CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
DAEMON_SETS = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets"
MARK = {"checkpointd.io/checkpoint": "true"}
API_SERVER = "kube-apiserver"
PKI_FILES = ("ca.crt", "server.pem", "node.pem", "admin.pem")


def secret(name: str, content: Mapping[str, bytes]) -> Object:
    """Return a Secret."""
    encoded = {key: base64.b64encode(value).decode() for key, value in content.items()}
    return {"metadata": {"name": name}, "data": encoded}


def config_map(name: str, content: Mapping[str, str]) -> Object:
    """Return a ConfigMap."""
    return {"metadata": {"name": name}, "data": dict(content)}


def web_container(port: int, *flags: str, mounts: Sequence[Object] = ()) -> Object:
    """Return a container that serves /srv over HTTP."""
    return {
        "name": "web",
        "image": "registry.example/web:1",
        "command": ["web", f"--port={port}", "--directory=/srv", *flags],
        "volumeMounts": [{"name": "site", "mountPath": "/srv"}, *mounts],
    }


def web_spec(port: int, *flags: str, host_network: bool = True, grace: int = 5) -> Object:
    """Return the spec of a web pod that serves ConfigMap "site" and has Secret "keys"."""
    keys = {"name": "keys", "mountPath": "/keys"}
    return {
        "hostNetwork": host_network,
        "terminationGracePeriodSeconds": grace,
        "containers": [web_container(port, *flags, mounts=[keys])],
        "volumes": [
            {"name": "site", "configMap": {"name": "site"}},
            {"name": "keys", "secret": {"secretName": "keys", "defaultMode": 0o400}},
        ],
    }


def pod(name: str, node: str, spec: Object, *, owner: Object | None = None) -> Object:
    """Return a marked pod that is bound to a node."""
    owners = [owner] if owner is not None else []
    metadata = {"name": name, "annotations": dict(MARK), "ownerReferences": owners}
    return {"metadata": metadata, "spec": {**spec, "nodeName": node}}


def daemon_set(name: str, spec: Object) -> Object:
    """Return a DaemonSet of marked pods with that spec."""
    labels = {"k8s-app": name}
    template = {"metadata": {"labels": labels, "annotations": dict(MARK)}, "spec": spec}
    return {
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }


def api_server_spec(port: int, state: Path) -> Object:
    """Return the spec of an API server's pod: host network, certificates from a Secret."""
    probe = {"httpGet": {"scheme": "HTTPS", "path": "/readyz", "port": "https"}}
    return {
        "hostNetwork": True,
        "priorityClassName": "system-node-critical",
        "tolerations": [{"operator": "Exists"}],
        "terminationGracePeriodSeconds": 3,
        "containers": [
            {
                "name": API_SERVER,
                "image": "registry.example/kube-apiserver:1.36",
                "command": [
                    API_SERVER,
                    f"--port={port}",
                    f"--state={state}",
                    "--pki=/etc/kubernetes/secrets",
                    "--grant=daemonsets",
                ],
                "ports": [{"name": "https", "containerPort": port}],
                "readinessProbe": probe,
                "volumeMounts": [
                    {"name": "pki", "mountPath": "/etc/kubernetes/secrets", "readOnly": True}
                ],
            }
        ],
        "volumes": [{"name": "pki", "secret": {"secretName": "apiserver-pki"}}],
    }


def self_host(node: Node) -> None:
    """Bring up a control plane whose API server is a DaemonSet's pod, as a bootstrap does.

    A temporary server takes the objects, and goes when the pod's own has been started once (and
    has failed: the port was taken). Returns when the pod is Ready.
    """
    layout = node.layout
    arguments = (
        f"--port={node.api_port}",
        f"--state={layout.api_state}",
        f"--pki={layout.pki}",
        "--grant=daemonsets",
        f"--node={node.name}",
    )
    bootstrap = node.processes.spawn(
        Spawn(
            group=node.group,
            name="bootstrap",
            log=str(layout.logs / "bootstrap.log"),
            module="tests.fakes.api_server",
            arguments=arguments,
        )
    )
    client = node.api
    wait_for("the bootstrap API server answers", lambda: client.list(PODS) == [])
    client.create(
        SECRETS, secret("apiserver-pki", {n: (layout.pki / n).read_bytes() for n in PKI_FILES})
    )
    client.create(
        DAEMON_SETS, daemon_set(API_SERVER, api_server_spec(node.api_port, layout.api_state))
    )
    node.start_controllers()
    wait_for("the API server's pod was started once", lambda: _has_run(node))
    bootstrap.kill()
    wait_for("the self-hosted API server is ready", lambda: ready_pods(node, API_SERVER))
    (layout.logs / "bootstrap.log").unlink()


def ready_pods(node: Node, name: str) -> list[Object]:
    """Return the pods with that label that are Ready. Raises api_client.FAILURES."""
    return [p for p in node.api.list(PODS) if is_of(p, name) and is_ready(p)]


def is_of(found: Object, name: str) -> bool:
    """Tell whether a pod is one of a DaemonSet's, and no mirror of a copy."""
    metadata = found["metadata"]
    is_mirror = "kubernetes.io/config.mirror" in metadata.get("annotations", {})
    return metadata.get("labels", {}).get("k8s-app") == name and not is_mirror


def is_ready(found: Object) -> bool:
    """Tell whether a pod's condition Ready is true."""
    conditions = found.get("status", {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _has_run(node: Node) -> bool:
    containers = node.ask_containerd("picture", since=0, seconds=0)["containers"]
    return any(c["name"] == API_SERVER for c in containers)
