"""Ask the API server what decide wants to know: a consistent LIST, a DaemonSet, a lease."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from checkpointd import json_fields
from checkpointd.clients.kube import KubeClient
from checkpointd.clients.kube_answers import Missing
from checkpointd.clock import Clock
from checkpointd.errors import FieldError, RejectedError, SourceError
from checkpointd.model import permissions
from checkpointd.model.decision import Question, Topic
from checkpointd.model.moments import Instant, Unknown, seen
from checkpointd.model.observation import (
    Fact,
    LeaseRead,
    ListConfirmed,
    OwnerRead,
    OwnerWord,
    World,
    WorldRead,
)
from checkpointd.model.pods import Controller, Slot, slot_for
from checkpointd.observe.api import owners, pods, world
from checkpointd.observe.api.access import ApiAccess
from checkpointd.observe.api.denied import explained
from checkpointd.observe.source import Schedule, SourceThread

T = TypeVar("T")
IDLE_PAUSE = 30.0
"""Seconds between rounds while nothing is asked; a question wakes it. As often ``check`` is called:
client-go looks at a token's file each minute, at certificates each 5."""
LEASE_NAMESPACE = "kube-node-lease"
"""k8s.io/api/core/v1, NamespaceNodeLease."""


class ApiLook(SourceThread):
    """Answer CONFIRM_LIST, OWNER and LEASE, each on a connection of this round's own.

    It says nothing of contact: that is for the watch. ``check`` is called in each round, and
    ``compare`` with the UIDs of each consistent LIST.
    """

    topics = frozenset({Topic.CONFIRM_LIST, Topic.OWNER, Topic.LEASE})

    def __init__(
        self,
        post: Callable[[Fact], None],
        clock: Clock,
        access: ApiAccess,
        check: Callable[[], None] = lambda: None,
        compare: Callable[[frozenset[str]], None] = lambda _uids: None,
    ) -> None:
        super().__init__("api-look", post, clock)
        self._check = check
        self._compare = compare
        self._access = access
        self._client = KubeClient(access.credentials, access.timeouts)
        self._schedule = Schedule()
        self._serial = 0

    def wake(self) -> None:
        """End the present wait; when stopping, the call that is under way too."""
        if self.stopping.is_set():
            self._client.close()
        super().wake()

    def step(self) -> float:
        """Answer the questions that are due."""
        self._check()
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
            self._read(question, at)
        except (SourceError, FieldError) as error:
            if not self.stopping.is_set():
                self._post_unknown(question, Unknown(str(error), at))

    def _read(self, question: Question, at: Instant) -> None:
        """Read what is asked and post it, after the world that it is of.

        Raises SourceError, FieldError.
        """
        match question.topic:
            case Topic.CONFIRM_LIST:
                uids = self._confirm(at)
                self.post(ListConfirmed(seen(uids, at)))
                self._compare(uids)
            case Topic.OWNER:
                owner = self._of_known_world(lambda: self._read_owner(question), at)
                self.post(OwnerRead(_slot_of(question), seen(owner, at)))
            case _:
                lease = self._of_known_world(self._read_lease, at)
                self.post(LeaseRead(seen(lease, at)))

    def _of_known_world(self, read: Callable[[], T], at: Instant) -> T:
        """Return what ``read`` does, of a server whose world was posted before.

        With other credentials it may be another cluster, where our DaemonSets are missing. Raises
        SourceError, FieldError.
        """
        found = read()
        if self._client.serial != self._serial:
            self.post(WorldRead(seen(self._read_world(), at)))
            found = read()
            self._check_same()
        return found

    def _read_world(self) -> World:
        name = self._access.node_name()
        with explained(permissions.GET_NODE):
            node = self._client.get_node(name)
        self._serial = self._client.serial
        return world.read_world(self._client, node, name)

    def _check_same(self) -> None:
        if self._client.serial != self._serial:
            raise RejectedError("the credentials changed meanwhile: it is asked again")

    def _post_unknown(self, question: Question, unknown: Unknown) -> None:
        match question.topic:
            case Topic.CONFIRM_LIST:
                self.post(ListConfirmed(unknown))
            case Topic.OWNER:
                self.post(OwnerRead(_slot_of(question), unknown))
            case _:
                self.post(LeaseRead(unknown))

    def _confirm(self, at: Instant) -> frozenset[str]:
        """Post the world and return the UIDs of one LIST from etcd.

        The watch may have been open for an hour: whose list this is must be known anew, and whether
        our Node is still there. A pod without a UID fails the list.
        """
        found = self._read_world()
        with explained(permissions.LIST_PODS):
            listed = self._client.list_pods(self._access.node_name(), pods.parse_uid)
        self._check_same()
        self.post(WorldRead(seen(found, at)))
        return frozenset(listed.items)

    def _read_owner(self, question: Question) -> OwnerWord:
        """Return the DaemonSet's word. Raises SourceError, FieldError."""
        namespace, _, name = question.target.partition("/")
        with explained(permissions.GET_DAEMON_SET):
            daemon_set = self._client.get_daemon_set(namespace, name)
        if isinstance(daemon_set, Missing):
            return OwnerWord.GONE
        node_name = self._access.node_name()
        with explained(permissions.GET_NODE):
            node = self._client.get_node(node_name)
        if isinstance(node, Missing):
            raise RejectedError(f"Node {node_name} is missing: nobody can want it")
        return owners.judge_daemon_set(daemon_set, node)

    def _read_lease(self) -> str:
        """Return renewTime as it is written. Raises SourceError, FieldError."""
        name = self._access.node_name()
        with explained(permissions.GET_LEASE):
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
