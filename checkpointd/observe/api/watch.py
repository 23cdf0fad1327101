"""Follow the API server: contact, world, and this node's pods by LIST and WATCH.

A watch blocks in its read, so its end is noticed within a millisecond and followed at once by a
fresh connection. Nothing here judges what lost contact means.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from checkpointd import json_fields, log
from checkpointd.clients.kube import KubeClient
from checkpointd.clients.kube_answers import WatchEvent
from checkpointd.clock import Clock
from checkpointd.errors import FieldError, RejectedError, SilentError, SourceError
from checkpointd.model import permissions
from checkpointd.model.decision import Topic
from checkpointd.model.moments import Instant, Unknown, seen
from checkpointd.model.observation import ApiPodsRead, ApiUserRead, Fact, World, WorldRead
from checkpointd.model.selection import Selection
from checkpointd.observe.api import pod_map, world
from checkpointd.observe.api.access import ApiAccess
from checkpointd.observe.api.contact import Contact, Patience
from checkpointd.observe.api.denied import explained
from checkpointd.observe.source import SourceThread

GONE = 410
SHORT_WATCH = 1.0
SHORT_WATCHES = 5
"""So many watches in a row may end within a second before their renewal is paced: a server that
goes down ends them, answers once more, and is then gone."""


@dataclass(frozen=True, slots=True)
class _Basis:
    """Hold what a list was made with: with anything else it must be made anew."""

    node_name: str
    selection: Selection
    anchor_uid: str
    node_uid: str


class _OtherCredentialsError(Exception):
    """End a round in whose middle the credentials changed: what was asked is of two servers."""


class ApiWatch(SourceThread):
    """Keep one watch open and post what it tells; while there is none, probe.

    CONTACT asks it to probe more often: an API server has just been started here.
    """

    topics = frozenset({Topic.CONTACT})

    def __init__(
        self,
        post: Callable[[Fact], None],
        clock: Clock,
        access: ApiAccess,
        patience: Patience | None = None,
    ) -> None:
        super().__init__("api-watch", post, clock)
        self._access = access
        self._patience = patience or Patience()
        self._client = KubeClient(access.credentials, access.timeouts)
        self._contact = Contact(post, access, self._patience)
        self._pods = pod_map.PodMap()
        self._known_uids: frozenset[str] = frozenset()
        self._basis: _Basis | None = None
        self._version = ""
        self._asked_at = clock.now()
        self._world_unknown: str | None = None
        self._pods_unknown: str | None = None
        self._watching = False
        self._relisting = False
        self._short_watches = 0
        self._warned: tuple[str, ...] = ()
        self._user = ""
        self._serial = 0

    # ---- from other threads --------------------------------------------------------------------
    def wake(self) -> None:
        """End the present wait; when stopping, the call that is under way too."""
        if self.stopping.is_set():
            self._client.close()
        super().wake()

    def relist(self) -> None:
        """List anew, since marks or credentials may have changed."""
        with self.lock:
            self._relisting = True
            if self._watching:
                self._client.interrupt()
        self.wake()

    def check_credentials(self) -> None:
        """List anew where the open watch speaks for whom the files no longer name.

        To be called now and then: a quiet server sends nothing for minutes. client-go closes its
        connections too when a client certificate rotates, within 5 min.
        """
        if self._client.is_outdated():
            self.relist()

    def compare(self, uids: frozenset[str]) -> None:
        """List anew where a consistent LIST has pods that we have not.

        A list that was wrong once would else be believed for as long as none of them changes.
        """
        if not uids <= self._known_uids:
            self.relist()

    # ---- one round -----------------------------------------------------------------------------
    def step(self) -> float:
        """Connect, list if need be, and follow the watch to its end."""
        began = self.clock.now()
        try:
            basis = self._connect(began)
            if basis != self._basis or not self._version:
                self._list(basis)
            self._tell_user()
            self._watch(basis)
        except _OtherCredentialsError:
            self._version = ""
        except SourceError as error:
            self._lose(error)
            return self._seconds_to_probe(began)
        return self._pace(began)

    def report_failure(self, why: str) -> None:
        """Post Unknown for world and pods; of contact a fault of our own says nothing."""
        self._post_unknown(why, of_world=True)

    def _connect(self, began: Instant) -> _Basis:
        """Ask on a fresh connection for our Node, then for the world. Raises SourceError."""
        self._client.drop_connections()
        self._asked_at = began
        with self.lock:
            self._relisting = False
        name = self._access.node_name()
        with explained(permissions.GET_NODE):
            node = self._client.get_node(name)
        self._serial = self._client.serial
        self._contact.answered(began, self._client.peer)
        self._warn()
        found = world.read_world(self._client, node, name)
        self._check_same()
        self.post(WorldRead(seen(found, began)))
        self._world_unknown = None
        return self._basis_of(name, found)

    def _check_same(self) -> None:
        """Raise _OtherCredentialsError where the world that was read may not be whom we asked."""
        if self._client.serial != self._serial:
            raise _OtherCredentialsError

    def _basis_of(self, name: str, found: World) -> _Basis:
        return _Basis(name, self._access.selection(), found.anchor_uid, found.node_uid)

    def _list(self, basis: _Basis) -> None:
        """List all pods and post them. Raises SourceError."""
        self._asked_at = at = self.clock.now()
        with explained(permissions.LIST_PODS):
            listed = self._client.list_pods(
                basis.node_name, lambda raw: pod_map.parse(raw, basis.selection, basis.node_name)
            )
        self._check_same()
        self._pods.replace(listed.items)
        self._known_uids = self._pods.uids
        self._basis, self._version = basis, listed.resource_version
        self.post(ApiPodsRead(self._pods.read(at)))
        self._pods_unknown = None
        self._contact.answered(at, self._client.peer)

    # ---- the watch -----------------------------------------------------------------------------
    def _watch(self, basis: _Basis) -> None:
        """Follow a watch to its end. Raises SourceError where it failed.

        After a normal end, or a bookmark that is overdue, the next round goes on from the version
        that was last seen, if the server still answers.
        """
        self._asked_at = opening = self.clock.now()
        try:
            with (
                explained(permissions.WATCH_PODS),
                self._client.watch_pods(basis.node_name, self._version, self._quiet) as events,
            ):
                self._check_same()
                self._contact.answered(opening, self._client.peer)
                self._contact.watching()
                self._follow(events, basis)
        except RejectedError as error:
            if error.status != GONE:
                raise
            self._version = ""

    def _follow(self, events: Iterator[WatchEvent], basis: _Basis) -> None:
        if not self._begin_watching():
            self._version = ""
            return
        try:
            self._take_all(events, basis)
        except SilentError:
            return
        except SourceError as error:
            self._lose_watch(error)
        finally:
            with self.lock:
                self._watching = False

    def _take_all(self, events: Iterator[WatchEvent], basis: _Basis) -> None:
        for event in events:
            at = self.clock.now()
            if event.type == "ERROR" or not self._take(event, basis, at):
                self._version = ""
                return
            self._contact.answered(at, self._client.peer)

    def _take(self, event: WatchEvent, basis: _Basis, at: Instant) -> bool:
        """Take over one event; False where it cannot be understood and a list must."""
        version = _version_of(event)
        if not version:
            return False
        if event.type != "BOOKMARK":
            try:
                self._pods.apply(event, basis.selection, basis.node_name)
                self._known_uids = self._pods.uids
            except FieldError:
                return False
            self.post(ApiPodsRead(self._pods.read(at)))
        self._version = version
        return True

    def _quiet(self) -> float:
        """Return the seconds that may pass without an event.

        After a loss only until a second answer counts: a quiet node would wait a minute for it.
        """
        to_confirm = self._contact.seconds_to_confirm(self.clock.now())
        # A little more, so that the answer is not too early by a rounding.
        return self._patience.quiet if to_confirm is None else to_confirm + 0.05

    def _begin_watching(self) -> bool:
        """Let ``relist`` end the watch from now on; False where it was called before."""
        with self.lock:
            self._watching = not self._relisting
            return self._watching

    def _seconds_to_probe(self, began: Instant) -> float:
        now = self.clock.now()
        asked = [question.period for question in self.asked if question.period is not None]
        soon = [max(0.1, period - now.seconds_since(began)) for period in asked]
        return min([self._contact.seconds_to_probe(began, now), *soon])

    def _pace(self, began: Instant) -> float:
        if self.clock.now().seconds_since(began) >= SHORT_WATCH:
            self._short_watches = 0
            return 0.0
        self._short_watches += 1
        return 0.0 if self._short_watches <= SHORT_WATCHES else self._patience.probe

    # ---- losses --------------------------------------------------------------------------------
    def _lose(self, error: SourceError) -> None:
        """Tell of contact: what was asked last had no usable answer."""
        if self.stopping.is_set():
            return
        self._contact.failed(error, self._asked_at, self._client.peer)
        self._tell_user()
        self._post_unknown(str(error), of_world=True)

    def _lose_watch(self, error: SourceError) -> None:
        """Note that a watch broke: what it missed is not known. The next round tells of contact."""
        self._version = ""
        with self.lock:
            wanted = self._relisting
        if not wanted and not self.stopping.is_set():
            self._post_unknown(str(error), of_world=False)

    def _post_unknown(self, why: str, *, of_world: bool) -> None:
        """Post Unknown once for each new reason, until there is an answer again."""
        self._version = ""
        unknown = Unknown(why, self.clock.now())
        if of_world and self._world_unknown != why:
            self._world_unknown = why
            self.post(WorldRead(unknown))
        if self._pods_unknown != why:
            self._pods_unknown = why
            self.post(ApiPodsRead(unknown))

    def _tell_user(self) -> None:
        """Post whom the credentials stand for, when that changed."""
        if self._client.user != self._user:
            self._user = self._client.user
            self.post(ApiUserRead(self._user))

    def _warn(self) -> None:
        """Log what is unsafe in the credentials, once."""
        warnings = self._access.credentials().warnings
        if warnings != self._warned:
            self._warned = warnings
            for warning in warnings:
                logging.getLogger(log.LOGGER).warning("%s", warning)


def _version_of(event: WatchEvent) -> str:
    """Return the version that an event carries, "" where it carries none."""
    try:
        return json_fields.optional_text(event.object, "metadata", "resourceVersion")
    except FieldError:
        return ""
