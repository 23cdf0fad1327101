"""Ask the API server what decide wants to know: a consistent LIST, a DaemonSet, a lease."""

from __future__ import annotations

from collections.abc import Callable

from checkpointd import json_fields
from checkpointd.clients.kube import KubeClient
from checkpointd.clients.kube_answers import Missing
from checkpointd.clock import Clock
from checkpointd.errors import FieldError, RejectedError, SourceError
from checkpointd.model.decision import Question, Topic
from checkpointd.model.moments import Instant, Unknown, seen
from checkpointd.model.observation import (
    Fact,
    LeaseRead,
    ListConfirmed,
    OwnerRead,
    OwnerWord,
    WorldRead,
)
from checkpointd.model.pods import Controller, Slot, slot_for
from checkpointd.observe.api import owners, pods, world
from checkpointd.observe.api.access import ApiAccess
from checkpointd.observe.source import Schedule, SourceThread

IDLE_PAUSE = 300.0
"""Seconds between rounds while nothing is asked; a question wakes it."""
LEASE_NAMESPACE = "kube-node-lease"
"""k8s.io/api/core/v1, NamespaceNodeLease."""


class ApiLook(SourceThread):
    """Answer CONFIRM_LIST, OWNER and LEASE, each on a connection of this round's own.

    It says nothing of contact: that is for the watch.
    """

    topics = frozenset({Topic.CONFIRM_LIST, Topic.OWNER, Topic.LEASE})

    def __init__(self, post: Callable[[Fact], None], clock: Clock, access: ApiAccess) -> None:
        super().__init__("api-look", post, clock)
        self._access = access
        self._client = KubeClient(access.credentials, access.timeouts)
        self._schedule = Schedule()

    def wake(self) -> None:
        """End the present wait; when stopping, the call that is under way too."""
        if self.stopping.is_set():
            self._client.close()
        super().wake()

    def step(self) -> float:
        """Answer the questions that are due."""
        self._schedule.ask(self.asked)
        for question in self._schedule.due(self.clock.now()):
            if self.stopping.is_set():
                return 0.0
            at = self.clock.now()
            self._answer(question, at)
            self._schedule.answered(question, at)
        self._client.drop_connections()
        return self._schedule.seconds_to_next(self.clock.now(), IDLE_PAUSE)

    def report_failure(self, why: str) -> None:
        """Post Unknown for everything that was asked."""
        for question in self.asked:
            self._post_unknown(question, Unknown(why, self.clock.now()))

    def _answer(self, question: Question, at: Instant) -> None:
        try:
            match question.topic:
                case Topic.CONFIRM_LIST:
                    self._confirm(at)
                case Topic.OWNER:
                    self.post(OwnerRead(_slot_of(question), seen(self._read_owner(question), at)))
                case _:
                    self.post(LeaseRead(seen(self._read_lease(), at)))
        except (SourceError, FieldError) as error:
            if not self.stopping.is_set():
                self._post_unknown(question, Unknown(str(error), at))

    def _post_unknown(self, question: Question, unknown: Unknown) -> None:
        match question.topic:
            case Topic.CONFIRM_LIST:
                self.post(ListConfirmed(unknown))
            case Topic.OWNER:
                self.post(OwnerRead(_slot_of(question), unknown))
            case _:
                self.post(LeaseRead(unknown))

    def _confirm(self, at: Instant) -> None:
        """Post the world, then the UIDs of one LIST from etcd.

        The watch may have been open for an hour: whose list this is must be known anew, and whether
        our Node is still there. A pod without a UID fails the list.
        """
        name = self._access.node_name()
        found = world.read_world(self._client, self._client.get_node(name), name)
        listed = self._client.list_pods(name, pods.parse_uid)
        self.post(WorldRead(seen(found, at)))
        self.post(ListConfirmed(seen(frozenset(listed.items), at)))

    def _read_owner(self, question: Question) -> OwnerWord:
        """Return the DaemonSet's word. Raises SourceError, FieldError."""
        namespace, _, name = question.target.partition("/")
        daemon_set = self._client.get_daemon_set(namespace, name)
        if isinstance(daemon_set, Missing):
            return OwnerWord.GONE
        node_name = self._access.node_name()
        node = self._client.get_node(node_name)
        if isinstance(node, Missing):
            raise RejectedError(f"Node {node_name} is missing: nobody can want it")
        return owners.judge_daemon_set(daemon_set, node)

    def _read_lease(self) -> str:
        """Return renewTime as it is written. Raises SourceError, FieldError."""
        name = self._access.node_name()
        lease = self._client.get_lease(LEASE_NAMESPACE, name)
        if isinstance(lease, Missing):
            raise RejectedError(f"Lease {LEASE_NAMESPACE}/{name} is missing")
        return json_fields.text(lease, "spec", "renewTime")


def _slot_of(question: Question) -> Slot:
    """Return the slot that was asked for, else the one that the DaemonSet's pods have."""
    if question.slot is not None:
        return question.slot
    namespace, _, name = question.target.partition("/")
    controller = Controller(api_version="apps/v1", kind="DaemonSet", name=name)
    return slot_for(namespace, name, controller)
