"""Keep this node's pods by UID from a LIST and the events that follow it.

Pods that did not change stay the same objects. A pod that cannot be read is never taken for gone:
what was last read of it stays, and where nothing was, the whole list is Unknown.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from checkpointd import log
from checkpointd.clients.kube_answers import WatchEvent
from checkpointd.errors import FieldError
from checkpointd.json_fields import Json
from checkpointd.model.moments import Instant, Seen, Unknown, seen
from checkpointd.model.pods import ApiPod
from checkpointd.model.selection import Selection
from checkpointd.observe.api import pods


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Name a pod that is there but cannot be read."""

    uid: str
    why: str


class PodMap:
    """Hold the pods of one node as the API last told them."""

    def __init__(self) -> None:
        self._pods: dict[str, ApiPod] = {}
        self._unreadable: dict[str, str] = {}
        self._logged: frozenset[str] = frozenset()
        self._all: tuple[ApiPod, ...] = ()

    @property
    def uids(self) -> frozenset[str]:
        """Return the UIDs of all pods, those that cannot be read too."""
        return frozenset(self._pods) | frozenset(self._unreadable)

    def replace(self, listed: Iterable[ApiPod | Unreadable]) -> None:
        """Take over a whole list."""
        before, self._pods, self._unreadable = self._pods, {}, {}
        for entry in listed:
            self._keep(entry, before.get(entry.uid))
        self._all = tuple(self._pods.values())

    def apply(self, event: WatchEvent, selection: Selection, node_name: str) -> None:
        """Take over one ADDED, MODIFIED or DELETED. Raises FieldError if it names no pod."""
        uid = pods.parse_uid(event.object)
        before = self._pods.get(uid)
        if event.type == "DELETED":
            self._pods.pop(uid, None)
            self._unreadable.pop(uid, None)
        else:
            self._unreadable.pop(uid, None)
            self._keep(parse(event.object, selection, node_name), before)
        if self._pods.get(uid) is not before:
            self._all = tuple(self._pods.values())

    def read(self, at: Instant) -> Seen[tuple[ApiPod, ...]] | Unknown:
        """Return the pods, Unknown while there is one of which nothing could be read."""
        for uid, why in self._unreadable.items():
            return Unknown(f"pod {uid} cannot be read: {why}", at)
        return seen(self._all, at)

    def _keep(self, entry: ApiPod | Unreadable, before: ApiPod | None) -> None:
        if isinstance(entry, ApiPod):
            self._pods[entry.uid] = before if before == entry and before is not None else entry
            return
        self._log_once(entry)
        if before is None:
            self._unreadable[entry.uid] = entry.why
        else:
            self._pods[entry.uid] = before

    def _log_once(self, entry: Unreadable) -> None:
        if entry.uid not in self._logged:
            self._logged |= {entry.uid}
            logger = logging.getLogger(log.LOGGER)
            logger.warning("the API's pod %s cannot be read: %s", entry.uid, entry.why)


def parse(raw: Json, selection: Selection, node_name: str) -> ApiPod | Unreadable:
    """Parse one pod. Raises FieldError only for one without a UID."""
    uid = pods.parse_uid(raw)
    try:
        return pods.parse_pod(raw, selection, node_name)
    except FieldError as error:
        return Unreadable(uid, str(error))
