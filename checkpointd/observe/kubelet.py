"""Read the kubelet's own list of pods, and what its cache sees running.

The list comes from the first of three that answers: the pod-resources socket (it needs no API
server), /pods on the secure port, /pods on the read-only port. A failure of all is Unknown and says
nothing of any pod (field reports A4, A5, A11).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from checkpointd.clients import kubelet
from checkpointd.clients.credentials import Credentials
from checkpointd.clients.kubelet import Endpoints, KubeletClient, Trust
from checkpointd.clients.pod_resources import PodResourcesClient
from checkpointd.clock import Clock
from checkpointd.errors import SourceError
from checkpointd.model.decision import Topic
from checkpointd.model.moments import Instant, Unknown, seen
from checkpointd.model.observation import (
    Fact,
    KubeletListRead,
    KubeletProcess,
    PodName,
    RunningPodsRead,
)
from checkpointd.observe.paced import Attempts, PacedSource
from checkpointd.settings import KubeletSettings

TIMEOUT = 3.0
"""Seconds for one request: three may follow each other before the list is Unknown."""

LONGEST_PAUSE = 30.0
"""Seconds at most for which a list that failed is passed over while another answers."""


@dataclass(frozen=True, slots=True)
class Clients:
    """Hold what to ask one kubelet with; another object means another kubelet or configuration."""

    http: KubeletClient
    pod_resources: PodResourcesClient


class ClientFinder:
    """Find the clients of the kubelet that runs now: a ``find_clients`` for the source.

    ``find_kubelet`` returns what is known of its process, None while there is none; what the
    settings say wins. ``find_credentials`` returns the node's own, None where there are none.
    """

    def __init__(
        self,
        settings: KubeletSettings,
        find_kubelet: Callable[[], KubeletProcess | None],
        find_credentials: Callable[[], Credentials | None],
        *,
        timeout: float = TIMEOUT,
    ) -> None:
        self._settings = settings
        self._find_kubelet = find_kubelet
        self._find_credentials = find_credentials
        self._timeout = timeout
        self._found: tuple[Endpoints, Trust, Clients] | None = None

    def __call__(self) -> Clients | None:
        """Return the clients; new ones only if ports, directories or certificates changed."""
        process = self._find_kubelet()
        if process is None:
            return None
        endpoints = kubelet.endpoints_of(process, self._settings)
        trust = kubelet.choose_trust(self._settings, endpoints.root_dir, process.node_name)
        found = self._found
        if found is None or found[:2] != (endpoints, trust):
            found = self._found = (endpoints, trust, self._make(endpoints, trust))
        return found[2]

    def _make(self, endpoints: Endpoints, trust: Trust) -> Clients:
        find = kubelet.choose_credentials(self._settings, self._find_credentials)
        return Clients(
            http=KubeletClient(endpoints, trust, find, timeout=self._timeout),
            pod_resources=PodResourcesClient(endpoints.root_dir, timeout=self._timeout),
        )


@dataclass(frozen=True, slots=True)
class _Way:
    name: str
    list_pods: Callable[[], frozenset[PodName]]
    attempts: Attempts


class KubeletSource(PacedSource):
    """Answer KUBELET_LIST and RUNNING_PODS.

    ``find_clients`` returns the same ``Clients`` as long as nothing changed, None while no kubelet
    process was found.
    """

    def __init__(
        self,
        post: Callable[[Fact], None],
        clock: Clock,
        find_clients: Callable[[], Clients | None],
    ) -> None:
        labels = {
            Topic.KUBELET_LIST: "the kubelet's list of pods",
            Topic.RUNNING_PODS: "the kubelet's /runningpods/",
        }
        super().__init__("kubelet", post, clock, labels)
        self._find_clients = find_clients
        self._clients: Clients | None = None
        self._ways: tuple[_Way, ...] = ()

    def read(self, topic: Topic, at: Instant) -> str:
        """Read and post one topic; return who answered. Raises SourceError."""
        clients = self._connect()
        if topic is Topic.KUBELET_LIST:
            pods, way = self._list(clients)
            self.post(KubeletListRead(seen(pods, at)))
            return f"read from {way}"
        self.post(RunningPodsRead(seen(clients.http.list_running(), at)))
        return "answers"

    def post_unknown(self, topic: Topic, unknown: Unknown) -> None:
        """Post that a topic could not be read."""
        is_list = topic is Topic.KUBELET_LIST
        self.post(KubeletListRead(unknown) if is_list else RunningPodsRead(unknown))

    def _connect(self) -> Clients:
        clients = self._find_clients()
        if clients is None:
            raise SourceError("no kubelet process was found")
        if clients is not self._clients:
            self._clients = clients
            self._ways = _ways(clients)
        return clients

    def _list(self, clients: Clients) -> tuple[frozenset[PodName], str]:
        """Ask each way in turn; those that failed lately only when no other answers."""
        now = self.clock.now()
        resting = [way for way in self._ways if way.attempts.seconds_to_next(now) > 0]
        ready = [way for way in self._ways if way not in resting]
        failures: list[str] = []
        for way in (*ready, *resting):
            try:
                pods = way.list_pods()
            except SourceError as error:
                way.attempts.failed(self.clock.now(), str(error))
                failures.append(str(error))
            else:
                way.attempts.succeeded(way.name)
                return pods, way.name
        raise SourceError("; ".join([_health(clients.http), *failures]))


def _ways(clients: Clients) -> tuple[_Way, ...]:
    asks = [
        ("the pod-resources socket", clients.pod_resources.list_pods),
        ("the secure port", clients.http.list_pods),
    ]
    if clients.http.endpoints.read_only_port:
        asks.append(("the read-only port", clients.http.list_pods_read_only))
    return tuple(_Way(name, ask, Attempts(longest=LONGEST_PAUSE)) for name, ask in asks)


def _health(http: KubeletClient) -> str:
    try:
        http.check_healthz()
    except SourceError as error:
        return str(error)
    return "the kubelet says that it is healthy, but gives no list"
