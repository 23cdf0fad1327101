"""Objects that the scenarios create, and the step that makes a control plane self-hosted."""

from __future__ import annotations

import base64

from tests.e2e.node import objects
from tests.e2e.node.api import PODS
from tests.e2e.node.cluster import API_PORT, Cluster
from tests.e2e.node.waiting import wait_for

NAMESPACE = "/api/v1/namespaces/kube-system"
DAEMON_SETS = "/apis/apps/v1/namespaces/kube-system/daemonsets"
DEPLOYMENTS = "/apis/apps/v1/namespaces/kube-system/deployments"
MARK = {"checkpointer.alpha.coreos.com/checkpoint": "true"}
API_SERVER = "kube-apiserver"


def secret(name: str, content: dict[str, bytes]) -> dict[str, object]:
    """Return a Secret."""
    encoded = {key: base64.b64encode(value).decode() for key, value in content.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": encoded}


def config_map(
    name: str, content: dict[str, str], binary: dict[str, bytes] | None = None
) -> dict[str, object]:
    """Return a ConfigMap."""
    encoded = {key: base64.b64encode(value).decode() for key, value in (binary or {}).items()}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name},
        "data": content,
        "binaryData": encoded,
    }


def daemon_set(name: str, spec: dict[str, object]) -> dict[str, object]:
    """Return a DaemonSet of marked pods with that spec, one on each node."""
    labels = {"k8s-app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels, "annotations": MARK}, "spec": spec},
        },
    }


def deployment(name: str, spec: dict[str, object]) -> dict[str, object]:
    """Return a Deployment of one marked pod with that spec."""
    made = daemon_set(name, spec)
    return {**made, "kind": "Deployment"}


def web_server(port: int) -> list[str]:
    """Return the command of a web server that ends at once when it is asked to."""
    return ["/bin/sh", "-c", f"trap 'exit 0' TERM; httpd -f -p {port} -h /www & wait"]


def agent_pod_spec(port: int) -> dict[str, object]:
    """Return the spec of a web server on the host's network, with the configMap `agent`."""
    return {
        "hostNetwork": True,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        "tolerations": [{"operator": "Exists"}],
        "containers": [
            {
                "name": "agent",
                "image": "registry.local/busybox:1",
                "imagePullPolicy": "IfNotPresent",
                "command": web_server(port),
                "volumeMounts": [{"name": "page", "mountPath": "/www"}],
            }
        ],
        "volumes": [{"name": "page", "configMap": {"name": "agent"}}],
    }


def start_agent(cluster: Cluster, port: int) -> object:
    """Create the DaemonSet `agent`, marked, and its configMap; return its pod, Ready."""
    cluster.api.create(f"{NAMESPACE}/configmaps", config_map("agent", {"page": "agent\n"}))
    cluster.api.create(DAEMON_SETS, daemon_set("agent", agent_pod_spec(port)))
    return wait_for("the agent is Ready", lambda: ready_pod(cluster, "agent"), 90)


def api_server_pod_spec(cluster: Cluster) -> dict[str, object]:
    """Return the spec of an API server's pod: host network, a secret and a configMap volume."""
    secrets, policy = "/etc/kubernetes/secrets", "/etc/kubernetes/policy"
    probe = {"httpGet": {"scheme": "HTTPS", "path": "/readyz", "port": API_PORT}}
    return {
        "hostNetwork": True,
        "tolerations": [{"operator": "Exists"}],
        "priorityClassName": "system-node-critical",
        "terminationGracePeriodSeconds": 5,
        "automountServiceAccountToken": False,
        "containers": [
            {
                "name": API_SERVER,
                "image": "registry.local/kube-apiserver:v1.20.2",
                "imagePullPolicy": "IfNotPresent",
                "command": [
                    "/bin/kube-apiserver",
                    *cluster.api_server_arguments(secrets),
                    f"--audit-policy-file={policy}/policy.yaml",
                ],
                "ports": [{"name": "https", "containerPort": API_PORT, "hostPort": API_PORT}],
                "readinessProbe": {**probe, "periodSeconds": 1},
                "livenessProbe": {**probe, "initialDelaySeconds": 30, "periodSeconds": 10},
                "volumeMounts": [
                    {"name": "secrets", "mountPath": secrets, "readOnly": True},
                    {"name": "policy", "mountPath": policy, "readOnly": True},
                ],
            }
        ],
        "volumes": [
            {"name": "secrets", "secret": {"secretName": API_SERVER, "defaultMode": 0o400}},
            {"name": "policy", "configMap": {"name": API_SERVER}},
        ],
    }


def become_self_hosted(cluster: Cluster) -> object:
    """Turn a cluster's API server from a service into the pod of a DaemonSet; return that pod.

    The node's kubelet must run. The service stops when the kubelet has the pod's volumes, which is
    all that it needs of the API.
    """
    api, machine = cluster.api, cluster.control_plane
    cluster.wait_for_node(machine)
    policy = '{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "None"}]}'
    api.create(f"{NAMESPACE}/secrets", secret(API_SERVER, cluster.api_server_files()))
    api.create(f"{NAMESPACE}/configmaps", config_map(API_SERVER, {"policy.yaml": policy}))
    api.create(DAEMON_SETS, daemon_set(API_SERVER, api_server_pod_spec(cluster)))

    def has_volumes() -> bool:
        pods = machine.path("/var/lib/kubelet/pods")
        volumes = {path.parent.name for path in pods.glob("*/volumes/kubernetes.io~*/*/..data")}
        return volumes >= {"secrets", "policy"}

    wait_for("the kubelet has the API server's volumes", has_volumes, 60, 0.01)
    machine.sh(f"systemctl -q disable --now {API_SERVER}")
    return wait_for("the API server's pod is Ready", lambda: ready_pod(cluster, API_SERVER), 90)


def pods_of(cluster: Cluster, name: str, *, mirrors: bool = False) -> list[object]:
    """Return the pods (or the mirror pods) that carry a DaemonSet's label."""
    found = cluster.api.get(f"{PODS}?labelSelector=k8s-app%3D{name}")
    return [pod for pod in objects.items(found, "items") if objects.is_mirror(pod) is mirrors]


def ready_pod(cluster: Cluster, name: str, *, other_than: str = "") -> object | None:
    """Return a Ready pod of a DaemonSet whose UID is not `other_than`, if there is one."""
    for pod in pods_of(cluster, name):
        is_other = objects.text(pod, "metadata", "uid") != other_than
        if is_other and objects.is_ready(pod) and not objects.is_terminating(pod):
            return pod
    return None


def ready_pods(cluster: Cluster, name: str = "") -> list[object]:
    """Return the Ready pods that are not being deleted, all or with that label; no mirror pods."""
    found = pods_of(cluster, name) if name else objects.items(cluster.api.get(PODS), "items")
    found = [pod for pod in found if not objects.is_mirror(pod)]
    return [pod for pod in found if objects.is_ready(pod) and not objects.is_terminating(pod)]


def evict(cluster: Cluster, pod: object) -> None:
    """Ask the API server to evict a pod, as `kubectl drain` does."""
    name = objects.text(pod, "metadata", "name")
    eviction = {"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": name}}
    cluster.api.create(f"{PODS}/{name}/eviction", eviction)


def is_of_daemon_set(pod: object) -> bool:
    """Say whether a DaemonSet made a pod: `kubectl drain --ignore-daemonsets` leaves it alone."""
    owners = objects.items(pod, "metadata", "ownerReferences")
    return any(objects.find(owner, "kind") == "DaemonSet" for owner in owners)
