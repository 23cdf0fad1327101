"""Join clients, sources, store and cycle: what is made of what, and nothing else."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from checkpointd import json_fields, log
from checkpointd.act.perform import Actor, Host
from checkpointd.act.stop import StopClient
from checkpointd.clients import network
from checkpointd.clients.cgroups import Cgroups
from checkpointd.clients.cri.client import CriClient
from checkpointd.clients.listeners import Listeners
from checkpointd.clients.proc import Procfs
from checkpointd.clock import Clock
from checkpointd.cycle import Cycle, World
from checkpointd.daemon.discovery import Discovery
from checkpointd.daemon.display import Display
from checkpointd.errors import StoreError
from checkpointd.model import selection
from checkpointd.model.checkpoint import Stored
from checkpointd.model.decision import Question
from checkpointd.model.files import Candidate
from checkpointd.model.moments import Seen
from checkpointd.model.observation import OverridesRead
from checkpointd.model.pods import ApiPod, Slot
from checkpointd.observe.api.access import ApiAccess
from checkpointd.observe.api.contact import Patience
from checkpointd.observe.api.look import ApiLook
from checkpointd.observe.api.watch import ApiWatch
from checkpointd.observe.candidates import CandidateThread, Surroundings
from checkpointd.observe.kernel import KernelSource
from checkpointd.observe.kubelet import ClientFinder, Clients, KubeletSource
from checkpointd.observe.machine import MachineSource
from checkpointd.observe.manager import ManagerQuery, ManagerSource
from checkpointd.observe.manifests import ManifestSource
from checkpointd.observe.runtime import RuntimeSource
from checkpointd.observe.source import Mailbox, SourceThread
from checkpointd.settings import KubeletSettings, Settings
from checkpointd.store import overrides
from checkpointd.store.checkpoints import CheckpointStore
from checkpointd.store.durable import Disk


class Wiring:
    """Make every part once. ``settings`` returns those in force."""

    def __init__(
        self,
        settings: Callable[[], Settings],
        clock: Clock,
        store: CheckpointStore,
        stored: Stored,
        disk: Disk,
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.mailbox = Mailbox()
        self.discovery = Discovery(
            settings, lambda: self.cycle.observation, lambda: self.cycle.stored.node
        )
        self.actor = Actor(store, disk, clock, self._host())
        self.procfs = Procfs(settings().paths.proc)
        self.manager = ManagerQuery(
            clock, self.procfs, settings().paths.manager_socket, settings().paths.run
        )
        self.display = Display(settings().paths.run, clock, self.discovery.cri_socket)
        self._finished: Callable[[str], None] = lambda _sentence: None
        self._stop_client: tuple[str, CriClient] | None = None
        self._finder: tuple[KubeletSettings, ClientFinder] | None = None
        self.cycle = Cycle(self._world(), stored, settings().policy)
        self.watch = ApiWatch(self.mailbox.post, clock, self._access(), self._patience())
        self.sources = self._sources(store)

    def _world(self) -> World:
        return World(
            clock=self.clock,
            inbox=self.mailbox,
            hands=self.actor,
            manager=self.manager,
            ask=self._ask,
            show=self.display.show,
            finished=lambda sentence: self._finished(sentence),
            find_faults=self.actor.find_faults,
        )

    def _host(self) -> Host:
        return Host(
            manifest_dir=self.discovery.manifest_dir,
            node_name=self.discovery.node_name,
            candidates=self._find_candidate,
            runtime=self._runtime,
            wake=self.mailbox.wake,
        )

    def _access(self) -> ApiAccess:
        return ApiAccess(
            credentials=self.discovery.credentials,
            find_node_name=self.discovery.node_name,
            selection=lambda: self.settings().policy.selection,
            find_listeners=Listeners(self.procfs).find,
            own_addresses=lambda: network.read_own_addresses(self.settings().paths.proc),
        )

    def _patience(self) -> Patience:
        return replace(Patience(), answers_apart=self.settings().policy.times.answers_apart)

    def _sources(self, store: CheckpointStore) -> tuple[SourceThread, ...]:
        post, clock, paths = self.mailbox.post, self.clock, self.settings().paths
        cgroups = Cgroups(paths.cgroup, self.procfs, self.discovery.cgroup_root)
        manager = ManagerSource(post, clock, self.manager)
        manifests = ManifestSource(
            post,
            clock,
            directory=lambda: str(self.discovery.manifest_dir()),
            overrides=(store.root / "overrides", lambda: self._read_overrides(store)),
            run=paths.run,
            frozen_changed=manager.look_now,
        )
        surroundings = Surroundings(
            find_pod=self.discovery.find_pod,
            root=self.discovery.root_dir,
            node=self.discovery.node_facts,
            max_bytes=lambda: self.settings().policy.selection.max_bytes,
        )
        return (
            manifests,
            MachineSource(post, clock, self.procfs),
            manager,
            KernelSource(post, clock, cgroups),
            RuntimeSource(post, clock, self.discovery.cri_socket),
            KubeletSource(post, clock, self._kubelet_clients),
            CandidateThread(post, clock, surroundings),
            self.watch,
            ApiLook(post, clock, self._access(), self.watch.check_credentials, self.watch.compare),
        )

    # ---- life ------------------------------------------------------------------------------------
    def on_finished(self, call: Callable[[str], None]) -> None:
        """Have ``call`` told the sentence of each cycle that has ended."""
        self._finished = call

    def start(self) -> None:
        """Remove our own leftovers from the static-pod directory, then start the sources."""
        try:
            self.actor.manifests.remove_leftovers()
        except StoreError as error:
            # Never fatal: a single file in its place, a read-only disk (design, section 7).
            logging.getLogger(log.LOGGER).warning("leftovers not removed: %s", error)
        for source in self.sources:
            source.start()

    def stop(self) -> None:
        """Ask all sources to end, then wait for each a little."""
        for source in self.sources:
            source.stopping.set()
            source.wake()
        self.discovery.stop()
        for source in self.sources:
            source.stop(0.5)

    def relist(self) -> None:
        """Have the API's pods listed anew, since marks may have changed."""
        self.watch.relist()

    @property
    def knows_marks(self) -> bool:
        """Tell whether it is known which pods are marked, or nothing is stored that could go."""
        return (
            isinstance(self.cycle.observation.api_pods, Seen) or not self.cycle.stored.checkpoints
        )

    def marked_slots(self, new: Settings) -> tuple[frozenset[Slot], frozenset[Slot]]:
        """Return the slots whose pods are marked now, and those that ``new`` would mark."""
        listed = self.cycle.observation.api_pods
        pods = [p for p in (listed.value if isinstance(listed, Seen) else ()) if p.marked]
        after = frozenset(pod.slot for pod in pods if _is_marked(pod, new))
        return frozenset(pod.slot for pod in pods), after

    # ---- what the parts ask of each other -----------------------------------------------------
    def _ask(self, questions: frozenset[Question]) -> None:
        for source in self.sources:
            source.ask(questions)

    def _find_candidate(self, uid: str) -> Candidate | None:
        reading = self.cycle.observation.candidates.get(uid)
        found = reading.value if isinstance(reading, Seen) else None
        return found if isinstance(found, Candidate) else None

    def _runtime(self) -> StopClient | None:
        socket = self.discovery.cri_socket()
        if self._stop_client is None or self._stop_client[0] != socket:
            self._stop_client = (socket, CriClient(socket))
        return self._stop_client[1]

    def _kubelet_clients(self) -> Clients | None:
        wanted = self.settings().kubelet
        if self._finder is None or self._finder[0] != wanted:
            finder = ClientFinder(
                wanted, self.discovery.kubelet, self.discovery.credentials_or_none
            )
            self._finder = (wanted, finder)
        return self._finder[1]()

    def _read_overrides(self, store: CheckpointStore) -> OverridesRead:
        read = overrides.read_overrides(store.root)
        return OverridesRead(read.words, read.problems, read.unread, read.all_unread)


def _is_marked(pod: ApiPod, new: Settings) -> bool:
    if pod.raw is None:
        return False
    mark = selection.find_mark(
        new.policy.selection,
        pod.namespace,
        json_fields.texts(pod.raw, "metadata", "labels"),
        json_fields.texts(pod.raw, "metadata", "annotations"),
    )
    return mark.marked
