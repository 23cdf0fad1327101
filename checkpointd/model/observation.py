"""Hold what the sources say, nothing combined: the facts that they post and their sum."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from checkpointd.model.files import Candidate, Refused
from checkpointd.model.moments import Instant, Seen, Unknown
from checkpointd.model.pods import ApiPod, Slot

PodName = tuple[str, str]
"""(namespace, name)."""


# ---- API server ---------------------------------------------------------------------------------
NAMESPACE_ANCHOR = "Namespace kube-system"
"""``anchor`` where the Service may not be read; "" where the Namespace may not either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Say which world answers: UIDs of default/kubernetes (else kube-system) and of our Node.

    ``node_found`` is False only for a Status NotFound that names our Node. ``anchor_uid`` is ""
    where neither Service nor Namespace may be read. ``anchor`` says which of both it is.
    ``service_host`` and ``service_port`` are the Service's clusterIP and first port, as pods get
    them in KUBERNETES_SERVICE_HOST and _PORT.
    """

    anchor: str
    anchor_uid: str
    node_uid: str
    node_found: bool
    allocatable: Mapping[str, str] = field(default_factory=dict[str, str])
    service_host: str = ""
    service_port: str = ""
    kubelet_version: str = ""


NOT_YET_READ = "not yet read"
"""Why a source is Unknown that nobody has asked yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiContact:
    """Count answers and refusals; the fold alone moves ``reached``.

    ``reached_since`` is when ``reached`` last changed. ``answers_since`` is the first of an
    unbroken run of answers, ``refusals`` the number of refused or reset connections since the last
    answer, ``silent_since`` the first attempt without a usable answer since the last one. ``why``
    is the latest failure. ``failures`` counts failed tries (of any kind) since the last answer.
    ``unknown_since`` is since when there has been no answer at all while not ``reached``: any
    answer breaks it.
    """

    reached: bool
    reached_since: Instant
    unknown_since: Instant | None = None
    answers_since: Instant | None = None
    answered_at: Instant | None = None
    refusals: int = 0
    refused_since: Instant | None = None
    refused_at: Instant | None = None
    silent_since: Instant | None = None
    failures: int = 0
    why: str = "not yet tried"
    address: str = ""
    local: bool = False
    listening_pods: frozenset[str] = frozenset()


class OwnerWord(Enum):
    """Say what a DaemonSet says of this node, or any controller of its pod."""

    WANTS = "wants this node"
    NOT_HERE = "does not want this node"
    GONE = "is gone"


# ---- kubelet and runtime ------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletProcess:
    """Say what is known of the running kubelet from its process and configuration file."""

    pid: int
    started: Instant
    version: str
    node_name: str
    manifest_dir: str
    root_dir: str
    cri_socket: str
    kubeconfig: str
    read_only_port: int
    port: int
    healthz_port: int
    address: str
    cgroup_root: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineProcesses:
    """Say which of the processes that can start containers exist now."""

    kubelet: KubeletProcess | None
    runtime_present: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletList:
    """Hold the kubelet's own list of pods by name: never whether they run.

    ``answering_since`` is the start of the unbroken run of answers of this kubelet process;
    ``last_listed`` says when each name was last in an answer.
    """

    pods: frozenset[PodName]
    answering_since: Instant
    last_listed: Mapping[PodName, Instant]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """Hold one CRI pod sandbox. ``created_ns`` is Unix time in nanoseconds."""

    id: str
    namespace: str
    name: str
    uid: str
    attempt: int
    ready: bool
    created_ns: int
    config_source: str
    checkpoint_of: str


class ContainerState(Enum):
    """Name the CRI's ContainerState."""

    CREATED = "created"
    RUNNING = "running"
    EXITED = "exited"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """Hold one CRI container; times are Unix nanoseconds."""

    id: str
    sandbox_id: str
    uid: str
    name: str
    attempt: int
    state: ContainerState
    created_ns: int
    image: str
    image_ref: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """Hold the runtime's whole picture from one look."""

    version: str
    api: str
    sandboxes: tuple[Sandbox, ...]
    containers: tuple[Container, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """Hold one container's cgroup: ``id`` is the container's or sandbox's id."""

    id: str
    pids: tuple[int, ...]
    only_pause: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PodProcesses:
    """Hold the live processes of one pod UID by container cgroup."""

    uid: str
    leaves: tuple[Leaf, ...]


# ---- machine ------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestFile:
    """Hold one entry of the static-pod directory; ``ours`` by name and annotations.

    ``problem`` is why it could not be read as a Pod ("" when it could). ``slot``, ``generation``
    and ``activation`` are ours only.
    """

    name: str
    sha256: str
    namespace: str = ""
    pod_name: str = ""
    uid: str = ""
    ours: bool = False
    slot: Slot | None = None
    generation: str = ""
    activation: int = 0
    parent_uid: str = ""
    parent_name: str = ""
    problem: str = ""


class Verb(Enum):
    """Name an operator's word on a slot or on the whole node."""

    HOLD = "hold"
    ACTIVATE = "activate"
    DEACTIVATE = "deactivate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """Hold an operator's word; ``until`` is wall time (RFC 3339) or "" for no end."""

    verb: Verb
    until: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """Sum up what every source last said. Built by ``decide.fold`` alone.

    ``candidates`` and ``ready_since`` are by pod UID. ``had_processes`` holds the UIDs in whose
    cgroups processes were ever seen, ``available`` since when a source (by the name of its field)
    has answered without a break. ``kubelet_in_boot`` and ``runtime_in_boot`` say whether such a
    process may have been there since the boot, ``thawed`` when a shutdown was last cancelled.
    ``exits`` says, by container id, when the runtime first showed it exited. ``api_user`` is whom
    our credentials stand for, "" where they do not say. ``service_denied`` is whether Service
    default/kubernetes could not be read for want of permission, when a world was last read.
    ``kubelet_started_ns`` is the kubelet's start in Unix nanoseconds, as the runtime counts.
    """

    boot_id: str
    started: Instant
    api_contact: ApiContact
    world: Seen[World] | Unknown
    api_pods: Seen[tuple[ApiPod, ...]] | Unknown
    confirmed_uids: Seen[frozenset[str]] | Unknown
    owners: Mapping[Slot, Seen[OwnerWord] | Unknown]
    lease: Seen[str] | Unknown
    machine: Seen[MachineProcesses] | Unknown
    kubelet_list: Seen[KubeletList] | Unknown
    running_pods: Seen[frozenset[str]] | Unknown
    runtime: Seen[Runtime] | Unknown
    images: Seen[frozenset[str]] | Unknown
    processes: Seen[Mapping[str, PodProcesses]] | Unknown
    manifests: Seen[Mapping[str, ManifestFile]] | Unknown
    default_route: Seen[bool] | Unknown
    manager_state: Seen[str] | Unknown
    frozen_file: bool
    overrides: Mapping[str, Override]
    candidates: Mapping[str, Seen[Candidate | Refused] | Unknown]
    ready_since: Mapping[str, Instant]
    had_processes: frozenset[str]
    kubelet_in_boot: bool = False
    kubelet_started_ns: int = 0
    override_problems: tuple[str, ...] = ()
    thawed: Instant | None = None
    exits: Mapping[str, Instant] = field(default_factory=dict[str, Instant])
    runtime_in_boot: bool = False
    available: Mapping[str, Instant] = field(default_factory=dict[str, Instant])
    api_user: str = ""
    manifest_problem: str = ""
    manifest_notes: tuple[str, ...] = ()
    service_denied: bool = False


# ---- facts: what a source thread posts; the fold merges each into the Observation ---------------
@dataclass(frozen=True, slots=True)
class ApiAnswered:
    """A usable answer came from the API server (any path, also a watch event)."""

    at: Instant
    address: str
    local: bool
    listening_pods: frozenset[str] | None = None  # None: not looked at this time


@dataclass(frozen=True, slots=True)
class ApiRefused:
    """A connection was refused, reset, or closed in the handshake."""

    at: Instant
    why: str


@dataclass(frozen=True, slots=True)
class ApiSilent:
    """No answer in time, or one that counts as none (401, 403, 5xx)."""

    at: Instant
    why: str


@dataclass(frozen=True, slots=True)
class ApiUserRead:
    """Carry whom our credentials stand for, by their own words; "" where they do not say."""

    user: str


@dataclass(frozen=True, slots=True)
class WorldRead:
    """Carry an answer on the world."""

    result: Seen[World] | Unknown


@dataclass(frozen=True, slots=True)
class ApiPodsRead:
    """Carry the whole list of this node's pods, after a LIST or a watch event."""

    result: Seen[tuple[ApiPod, ...]] | Unknown


@dataclass(frozen=True, slots=True)
class ListConfirmed:
    """Carry the UIDs of a consistent LIST that decide asked for; ``at`` is when it was sent."""

    result: Seen[frozenset[str]] | Unknown


@dataclass(frozen=True, slots=True)
class OwnerRead:
    """Carry a controller's word on a slot."""

    slot: Slot
    result: Seen[OwnerWord] | Unknown


@dataclass(frozen=True, slots=True)
class LeaseRead:
    """Carry the renewTime of the kubelet's lease as it stands."""

    result: Seen[str] | Unknown


@dataclass(frozen=True, slots=True)
class MachineRead:
    """Carry the processes that can start containers."""

    result: Seen[MachineProcesses] | Unknown


@dataclass(frozen=True, slots=True)
class KubeletListRead:
    """Carry one answer of the kubelet's list, or that it gave none."""

    result: Seen[frozenset[PodName]] | Unknown


@dataclass(frozen=True, slots=True)
class RunningPodsRead:
    """Carry the UIDs of /runningpods/ that have a container."""

    result: Seen[frozenset[str]] | Unknown


@dataclass(frozen=True, slots=True)
class RuntimeRead:
    """Carry one look at the container runtime."""

    result: Seen[Runtime] | Unknown


@dataclass(frozen=True, slots=True)
class ImagesRead:
    """Carry every reference (tag, digest, id) of the images in the runtime."""

    result: Seen[frozenset[str]] | Unknown


@dataclass(frozen=True, slots=True)
class ProcessesRead:
    """Carry the kernel's view of all pods, by UID."""

    result: Seen[Mapping[str, PodProcesses]] | Unknown


@dataclass(frozen=True, slots=True)
class ManifestsRead:
    """Carry one full look at the static-pod directory, by file name.

    ``problem`` and ``notes`` are sentences on the directory itself: what must be mended, what is
    only odd.
    """

    result: Seen[Mapping[str, ManifestFile]] | Unknown
    problem: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RouteRead:
    """Carry whether a default route exists."""

    result: Seen[bool] | Unknown


@dataclass(frozen=True, slots=True)
class ManagerRead:
    """Carry PID 1's SystemState and whether the freeze file exists."""

    result: Seen[str] | Unknown
    frozen_file: bool


@dataclass(frozen=True, slots=True)
class OverridesRead:
    """Carry the operators' words by ``node`` or ``<namespace>.<slot>``; a sentence per bad file.

    Of what is in ``unread`` (of everything, where ``all_unread``) the word before goes on.
    """

    overrides: Mapping[str, Override]
    problems: tuple[str, ...] = ()
    unread: frozenset[str] = frozenset()
    all_unread: bool = False


@dataclass(frozen=True, slots=True)
class CandidateRead:
    """Carry the rendering of one parent with the files that it has now."""

    parent_uid: str
    result: Seen[Candidate | Refused] | Unknown


Fact = (
    ApiAnswered
    | ApiRefused
    | ApiSilent
    | ApiUserRead
    | WorldRead
    | ApiPodsRead
    | ListConfirmed
    | OwnerRead
    | LeaseRead
    | MachineRead
    | KubeletListRead
    | RunningPodsRead
    | RuntimeRead
    | ImagesRead
    | ProcessesRead
    | ManifestsRead
    | RouteRead
    | ManagerRead
    | OverridesRead
    | CandidateRead
)
