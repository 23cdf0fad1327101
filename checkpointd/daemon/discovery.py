"""Say where things are on this host: as set, else as the kubelet has them, else as recorded.

What a kubelet once had is kept in node.json and used at boot, before it runs (design, section 5).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from checkpointd.clients import kubeconfig
from checkpointd.clients.credentials import Credentials
from checkpointd.errors import SourceError
from checkpointd.model.checkpoint import NodeRecord
from checkpointd.model.moments import Seen
from checkpointd.model.observation import KubeletProcess, Observation
from checkpointd.model.pods import ApiPod
from checkpointd.observe import places
from checkpointd.render.copy import NodeFacts
from checkpointd.settings import Settings

SERVICE_VARIABLES = {
    "KUBERNETES_SERVICE_HOST": "service_host",
    "KUBERNETES_SERVICE_PORT": "service_port",
}


class Discovery:
    """Answer from the newest of what is known; safe to ask from every thread.

    The three callables return immutable values that the cycle replaces as a whole.
    """

    def __init__(
        self,
        settings: Callable[[], Settings],
        observation: Callable[[], Observation],
        record: Callable[[], NodeRecord | None],
    ) -> None:
        self._settings = settings
        self._observation = observation
        self._record = record
        self._kubeconfig: kubeconfig.Kubeconfig | None = None

    def kubelet(self) -> KubeletProcess | None:
        """Return what is known of the kubelet that runs now."""
        machine = self._observation().machine
        return machine.value.kubelet if isinstance(machine, Seen) else None

    def manifest_dir(self) -> Path:
        """Return the static-pod directory."""
        return Path(self._find("manifest_dir"))

    def root_dir(self) -> Path:
        """Return the kubelet's root directory."""
        return Path(self._find("root_dir"))

    def cri_socket(self) -> str:
        """Return the runtime's endpoint."""
        return self._find("cri_socket")

    def cgroup_root(self) -> str:
        """Return the kubelet's --cgroup-root, "" for none."""
        kubelet = self.kubelet()
        if kubelet is not None:
            return kubelet.cgroup_root
        record = self._record()
        return record.discovered.get("cgroup_root", "") if record is not None else ""

    def node_name(self) -> str:
        """Return this node's name, "" while it is not known."""
        name = self._settings().policy.node_name
        return places.find_node_name(name, self.kubelet(), self._record()).value

    def node_facts(self) -> NodeFacts:
        """Return what rendering may know; as recorded, so that it does not come and go."""
        record = self._record()
        known: Mapping[str, str] = record.discovered if record is not None else {}
        service = {
            variable: known[key] for variable, key in SERVICE_VARIABLES.items() if known.get(key)
        }
        return NodeFacts(
            node_name=self.node_name(),
            kubelet_version=known.get("kubelet_version", ""),
            service=service if len(service) == len(SERVICE_VARIABLES) else {},
        )

    def credentials(self) -> Credentials:
        """Return who we are to the API server. Raises SourceError."""
        path = self._find("kubeconfig")
        if not path:
            raise SourceError("no kubeconfig is known: set [kubelet] kubeconfig")
        # Kept: it is asked for before each request, and YAML takes longer than the request.
        known = self._kubeconfig
        if known is None or known.path != Path(path):
            known = self._kubeconfig = kubeconfig.Kubeconfig(Path(path))
        return known.read()

    def stop(self) -> None:
        """End a credential plugin that runs: nobody waits for it any more."""
        if self._kubeconfig is not None:
            self._kubeconfig.stop()

    def credentials_or_none(self) -> Credentials | None:
        """Return who we are to the kubelet, None where the kubeconfig cannot be read."""
        try:
            return self.credentials()
        except SourceError:
            return None

    def find_pod(self, uid: str) -> ApiPod | None:
        """Return the API's pod of this UID."""
        listed = self._observation().api_pods
        if not isinstance(listed, Seen):
            return None
        return next((pod for pod in listed.value if pod.uid == uid), None)

    def _find(self, name: str) -> str:
        return places.find(name, self._settings().kubelet, self.kubelet(), self._record()).value
