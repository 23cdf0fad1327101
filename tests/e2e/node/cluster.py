"""Kubernetes on machines: certificates, control plane, kubelets, and objects that tests create.

Everything runs with real permissions: the node has a node's own certificate under the Node and
RBAC authorizers, and NodeRestriction is on.
"""

from __future__ import annotations

import base64
import json
import ssl
from pathlib import Path
from string import Template

from tests.e2e.node import objects
from tests.e2e.node.api import Api, ApiError, Connection, client_context, fetch
from tests.e2e.node.machine import Machine
from tests.e2e.node.pki import Authority, Certificate
from tests.e2e.node.waiting import wait_for

FILES = Path(__file__).parent / "files"
MANIFESTS = "/etc/kubernetes/manifests"
PKI = "/etc/kubernetes/pki"
API_PORT = 6443
GATEWAY = "10.99.0.254"


def install_template(
    machine: Machine, template: str, inside: str, mode: int = 0o644, **values: str
) -> None:
    """Write a file of node/files into a machine, with ${name} replaced where values are given."""
    content = (FILES / template).read_text()
    machine.write(inside, Template(content).substitute(values) if values else content, mode)


def start_units(machine: Machine, *units: str) -> None:
    """Enable units, now and at every boot."""
    machine.sh(f"systemctl -q daemon-reload && systemctl -q enable --now {' '.join(units)}")


def install_base(machine: Machine) -> None:
    """Give a machine that has just booted its network and writable cgroups."""
    install_template(machine, "node-setup", "/usr/local/sbin/node-setup", 0o755)
    install_template(
        machine,
        "node-setup.service",
        "/etc/systemd/system/node-setup.service",
        address=machine.address,
        gateway=GATEWAY,
    )
    start_units(machine, "node-setup.service")


def is_kubelet_healthy(machine: Machine) -> bool:
    """Say whether the kubelet's healthz is ok; raises OSError where nobody answers."""
    return fetch(machine.leader, ("127.0.0.1", 10248), "/healthz") == b"ok"


class Cluster:
    """One cluster: its certificate authority and the machine that runs etcd and the API server."""

    def __init__(self, control_plane: Machine, directory: Path) -> None:
        """Make the certificates. The machine need not run yet; `directory` is on the host."""
        self.control_plane = control_plane
        self.host = control_plane.address.split("/")[0]
        self.authority = Authority(directory)
        names = ("kubernetes", "kubernetes.default", "kubernetes.default.svc")
        addresses = ("127.0.0.1", self.host, "10.0.0.1")
        hosts = (*(f"IP:{one}" for one in addresses), *(f"DNS:{one}" for one in names))
        self.serving = self.authority.issue("apiserver", "/CN=kube-apiserver", hosts)
        self.admin = self.authority.issue("admin", "/O=system:masters/CN=admin")
        self.admin_context = client_context(self.authority, self.admin)
        self.api = self.api_from(control_plane, "127.0.0.1")

    def api_from(self, machine: Machine, host: str) -> Api:
        """Return the API server at `host` as an administrator on `machine` sees it."""
        return Api(machine, (host, API_PORT), self.admin_context)

    def install_control_plane(self) -> None:
        """Start etcd, API server, controller-manager and scheduler as services of the machine."""
        machine = self.control_plane
        for name, source in self.api_server_files().items():
            machine.write(f"{PKI}/{name}", source, 0o600)
        machine.write(f"{PKI}/sa.key", self.authority.service_account_key.read_bytes(), 0o600)
        machine.sh("chown -R root:root /var/lib/etcd")
        install_template(machine, "etcd.service", "/etc/systemd/system/etcd.service")
        self._install_service("kube-apiserver", self.api_server_arguments(PKI))
        for name, extra in (
            (
                "kube-controller-manager",
                [
                    f"--service-account-private-key-file={PKI}/sa.key",
                    f"--root-ca-file={PKI}/ca.crt",
                    "--use-service-account-credentials",
                    "--controllers=*,-nodeipam,-cloud-node-lifecycle,-route,-service",
                ],
            ),
            ("kube-scheduler", []),
        ):
            user = self.authority.issue(name, f"/CN=system:{name}")
            config = f"/etc/kubernetes/{name}.conf"
            self._install_kubeconfig(machine, config, user, "127.0.0.1", f"{PKI}/{name}.pem")
            self._install_service(name, [f"--kubeconfig={config}", "--leader-elect=false", *extra])
        start_units(machine, "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
        wait_for("the API server is ready", self.api.is_ready, 60)

    def api_server_files(self) -> dict[str, bytes]:
        """Return the files that an API server needs, by name."""
        return {
            "apiserver.crt": self.serving.certificate.read_bytes(),
            "apiserver.key": self.serving.key.read_bytes(),
            "ca.crt": self.authority.certificate.read_bytes(),
            "sa.pub": self.authority.service_account_public_key.read_bytes(),
            "sa.key": self.authority.service_account_key.read_bytes(),
        }

    def api_server_arguments(self, directory: str) -> list[str]:
        """Return the arguments of an API server whose files lie in `directory`."""
        return [
            "--etcd-servers=http://127.0.0.1:2379",
            f"--secure-port={API_PORT}",
            "--bind-address=0.0.0.0",
            f"--advertise-address={self.host}",
            f"--tls-cert-file={directory}/apiserver.crt",
            f"--tls-private-key-file={directory}/apiserver.key",
            f"--client-ca-file={directory}/ca.crt",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={directory}/sa.pub",
            f"--service-account-signing-key-file={directory}/sa.key",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--disable-admission-plugins=ServiceAccount",
            "--allow-privileged=true",
        ]

    def _install_service(self, name: str, arguments: list[str]) -> None:
        install_template(
            self.control_plane,
            "control-plane.service",
            f"/etc/systemd/system/{name}.service",
            name=name,
            arguments=" ".join(arguments),
        )

    def _install_kubeconfig(
        self, machine: Machine, inside: str, user: Certificate, host: str, pem: str
    ) -> None:
        """Write a kubeconfig whose key and certificate are one file, as the kubelet keeps its."""
        machine.write(pem, user.certificate.read_bytes() + user.key.read_bytes(), 0o600)
        authority = base64.b64encode(self.authority.certificate.read_bytes()).decode()
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "kubernetes",
                    "cluster": {
                        "server": f"https://{host}:{API_PORT}",
                        "certificate-authority-data": authority,
                    },
                }
            ],
            "users": [
                {"name": "user", "user": {"client-certificate": pem, "client-key": pem}},
            ],
            "contexts": [{"name": "main", "context": {"cluster": "kubernetes", "user": "user"}}],
            "current-context": "main",
        }
        machine.write(inside, json.dumps(config, indent=1), 0o600)

    def install_kubelet(self, machine: Machine, subnet: str = "10.244.0.0/24") -> None:
        """Start containerd and a kubelet on a machine of this cluster, and load the images.

        The kubelet is told of the API server at 127.0.0.1 where that runs on the same machine.
        """
        host = "127.0.0.1" if machine is self.control_plane else self.host
        user = self.authority.issue(
            f"node-{machine.name}", f"/O=system:nodes/CN=system:node:{machine.name}"
        )
        pem = "/var/lib/kubelet/pki/kubelet-client-current.pem"
        self._install_kubeconfig(machine, "/etc/kubernetes/kubelet.conf", user, host, pem)
        machine.write(f"{PKI}/ca.crt", self.authority.certificate.read_bytes())
        machine.sh(f"mkdir -p -m 0700 {MANIFESTS}")
        install_template(machine, "containerd.toml", "/etc/containerd/config.toml")
        install_template(machine, "cni.json", "/etc/cni/net.d/10-pods.conflist", subnet=subnet)
        arguments = [
            "--kubeconfig=/etc/kubernetes/kubelet.conf",
            f"--hostname-override={machine.name}",
            "--container-runtime=remote",
            "--container-runtime-endpoint=unix:///run/containerd/containerd.sock",
            f"--pod-manifest-path={MANIFESTS}",
            f"--client-ca-file={PKI}/ca.crt",
            "--anonymous-auth=false",
            "--authorization-mode=Webhook",
            "--read-only-port=0",
            "--fail-swap-on=false",
            "--cgroup-driver=cgroupfs",
            "--pod-infra-container-image=registry.local/pause:1",
            "--eviction-hard=",
            "--node-status-update-frequency=2s",  # Ready sooner after the start
        ]
        install_template(
            machine,
            "kubelet.service",
            "/etc/systemd/system/kubelet.service",
            arguments=" ".join(arguments),
        )
        start_units(machine, "containerd")
        machine.sh("for image in /opt/images/*.tar; do ctr -n k8s.io images import $image; done")
        self._create_node(machine.name)
        start_units(machine, "kubelet")

    def install_admin(self, machine: Machine, inside: str) -> None:
        """Write an administrator's kubeconfig for the API server on the same machine."""
        pem = f"{PKI}/admin.pem"
        self._install_kubeconfig(machine, inside, self.admin, "127.0.0.1", pem)

    def kubelet_pods(self, machine: Machine) -> list[object]:
        """Return the pods that a machine's kubelet has, as its port tells an administrator.

        The kubelet asks the API server whether it may tell, so that one must answer.
        """
        context = client_context(self.authority, self.admin)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # its certificate is signed by itself
        connection = Connection(machine.leader, ("127.0.0.1", 10250), context)
        try:
            status, _, body = connection.exchange("GET", "/pods")
        finally:
            connection.close()
        if status != 200:
            raise ApiError(status, body.decode(errors="replace"))
        return objects.items(json.loads(body), "items")

    def _create_node(self, name: str) -> None:
        """Make the Node before its kubelet does.

        A kubelet is not Ready before its CSINode is made, for which it needs the Node; when that
        comes late, it tries again later still. It panics on a Node without labels or capacity.
        """
        nothing = {"cpu": "0", "memory": "0"}
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "status": {"capacity": nothing, "allocatable": nothing},
        }
        self.api.create("/api/v1/nodes", node)

    def wait_for_node(self, machine: Machine, timeout: float = 90) -> None:
        """Return when a machine's Node is Ready and its kubelet needs the API no more.

        A kubelet that cannot make its CSINode in time exits, and then knows no pods.
        """
        node = f"/api/v1/nodes/{machine.name}"
        drivers = f"/apis/storage.k8s.io/v1/csinodes/{machine.name}"
        wait_for(
            f"node {machine.name} is Ready",
            lambda: objects.is_ready(self.api.get(node)) and self.api.exists(drivers),
            timeout,
        )
