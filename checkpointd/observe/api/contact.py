"""Tell of contact with the API server: answers, refusals, silence, and whose socket answered."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass
from random import SystemRandom

from checkpointd.clients.kube_connection import Peer
from checkpointd.errors import RefusedError, RejectedError, SourceError
from checkpointd.model.moments import Instant
from checkpointd.model.observation import ApiAnswered, ApiRefused, ApiSilent, Fact
from checkpointd.observe.api.access import ApiAccess

POST_EVERY = 1.0
LISTENERS_EVERY = 10.0
"""Seconds between looks for the socket's owner: one walks the descriptors of all processes."""
BOOKMARK_EVERY = 60.0
"""k8s.io/apiserver/pkg/storage/cacher/cacher.go, defaultBookmarkFrequency."""
BOOKMARK_OVERDUE = 90.0
PROBE_OFTEN_FOR = 60.0
PROBE_LATER = 5.0
PROBE_JITTER = 0.2
LEAVE_ALONE = 10.0
"""Seconds at most for which a server's Retry-After is heeded: its loss has to be noticed."""
TOO_MANY_REQUESTS = 429


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Hold seconds: how long a watch may be quiet, between answers that count, between probes.

    The fold counts on the API again after two answers that are ``answers_apart``.
    """

    quiet: float = BOOKMARK_EVERY + BOOKMARK_OVERDUE
    answers_apart: float = 10.0
    probe: float = 1.0


class Contact:
    """Post what each attempt showed. Counting and judging is for the fold."""

    def __init__(self, post: Callable[[Fact], None], access: ApiAccess, patience: Patience) -> None:
        self._post = post
        self._access = access
        self._patience = patience
        self._answering_since: Instant | None = None
        self._posted: Instant | None = None
        self._lost: Instant | None = None
        self._leave_alone = 0.0
        self._listeners = _Listeners(access)

    def answered(self, at: Instant, peer: Peer | None) -> None:
        """Note an answer to what was asked ``at``; post it, but at most once a second."""
        if self._answering_since is None:
            self._answering_since, self._posted = at, None
        if self._posted is not None and at.seconds_since(self._posted) < POST_EVERY:
            return
        self._posted = at
        local = peer is not None and self._is_own(peer.address)
        pods = self._listeners.find(peer.port, at) if local and peer is not None else None
        self._post(ApiAnswered(at, "" if peer is None else str(peer), local, pods))

    def watching(self) -> None:
        """Note that a watch is open: only then is it no longer to be probed for."""
        self._lost = None

    def failed(self, error: SourceError, at: Instant, peer: Peer | None) -> None:
        """Post what an attempt that began ``at`` showed in place of an answer."""
        self._lost = self._lost or at
        rejected = error if isinstance(error, RejectedError) else None
        self._leave_alone = 0.0 if rejected is None else min(rejected.retry_after, LEAVE_ALONE)
        if rejected is not None and rejected.status == TOO_MANY_REQUESTS:
            self.answered(at, peer)
            return
        self._answering_since, self._posted = None, None
        self._listeners.forget()
        if isinstance(error, RefusedError):
            self._post(ApiRefused(at, str(error)))
        else:
            self._post(ApiSilent(at, str(error)))

    def seconds_to_confirm(self, now: Instant) -> float | None:
        """Return the seconds until a further answer counts; None where one already did."""
        since, posted = self._answering_since, self._posted
        if since is None or posted is None:
            return self._patience.answers_apart
        if posted.seconds_since(since) >= self._patience.answers_apart:
            return None
        return max(0.0, self._patience.answers_apart - now.seconds_since(since))

    def seconds_to_probe(self, began: Instant, now: Instant) -> float:
        """Return the seconds to the next attempt, after one that began at ``began`` and failed."""
        lost = self._lost or began
        if now.seconds_since(lost) < PROBE_OFTEN_FOR:
            period = self._patience.probe
        else:
            period = PROBE_LATER * SystemRandom().uniform(1 - PROBE_JITTER, 1 + PROBE_JITTER)
        pause = max(self._patience.probe / 10, period - now.seconds_since(began))
        return max(pause, self._leave_alone)

    def _is_own(self, address: str) -> bool:
        plain = ipaddress.ip_address(address.partition("%")[0])
        return plain.is_loopback or str(plain) in self._access.own_addresses()


class _Listeners:
    """Find the pods whose processes listen on a port, but not too often."""

    def __init__(self, access: ApiAccess) -> None:
        self._find = access.find_listeners
        self._looked: tuple[int, Instant] | None = None

    def find(self, port: int, now: Instant) -> frozenset[str] | None:
        """Return them; None where they are not known or were not looked for this time."""
        if self._looked is not None:
            known, at = self._looked
            if known == port and now.seconds_since(at) < LISTENERS_EVERY:
                return None
        self._looked = (port, now)
        return self._find(port)

    def forget(self) -> None:
        """Look at once the next time."""
        self._looked = None
