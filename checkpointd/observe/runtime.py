"""Read what the container runtime has: sandboxes, containers, images.

A runtime that hangs, refuses or speaks no CRI that we know is Unknown, in bounded time, and is
tried again (field reports A3, A13, A14).
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from checkpointd.clients import unix_grpc
from checkpointd.clients.cri import client as cri
from checkpointd.clock import Clock
from checkpointd.errors import RejectedError, SourceError
from checkpointd.model.decision import Topic
from checkpointd.model.moments import Instant, Unknown, seen
from checkpointd.model.observation import Fact, ImagesRead, RuntimeRead
from checkpointd.observe.paced import PacedSource
from checkpointd.observe.source import SourceThread

TIMEOUT = 3.0
"""Seconds for one question to the runtime: a healthy one answers in under a millisecond."""
VERSION_PERIOD = 60.0
"""Seconds after which the version is asked for anew: an upgrade may go unnoticed otherwise."""
EVENT_PAUSE = 0.05
"""Seconds at least between two looks that events cause: a pod's start sends several."""
STREAM_SECONDS = 6 * 3600.0
STREAM_PAUSE = 1.0
NO_STREAM_PAUSE = 600.0
"""Seconds for which a stream is read, until the next, until a runtime without is asked again."""


class RuntimeSource(PacedSource):
    """Answer RUNTIME and IMAGES; look at once when the runtime tells of an event.

    ``find_socket`` returns the runtime's endpoint as it is known at that moment, "" for none.
    """

    def __init__(
        self,
        post: Callable[[Fact], None],
        clock: Clock,
        find_socket: Callable[[], str],
        *,
        timeout: float = TIMEOUT,
    ) -> None:
        labels = {
            Topic.RUNTIME: "container runtime",
            Topic.IMAGES: "images of the container runtime",
        }
        super().__init__("runtime", post, clock, labels)
        self._timeout = timeout
        self._find_socket = find_socket
        self._endpoint = ""
        self._client: cri.CriClient | None = None
        self._version: tuple[cri.RuntimeVersion, Instant] | None = None
        self._happened = threading.Event()
        self._looked: Instant | None = None
        self._events = RuntimeEvents(clock, lambda: self._client, self._note_event)

    def start(self) -> None:
        """Start this thread and the one that waits for events."""
        super().start()
        self._events.start()

    def stop(self, timeout: float = 2.0) -> None:
        """End both threads."""
        self._events.stop(timeout)
        super().stop(timeout)

    def read(self, topic: Topic, at: Instant) -> str:
        """Read and post one topic; return who answered. Raises SourceError."""
        try:
            return self._read_runtime(at) if topic is Topic.RUNTIME else self._read_images(at)
        except SourceError:
            self._version = None
            raise

    def post_unknown(self, topic: Topic, unknown: Unknown) -> None:
        """Post that a topic could not be read."""
        self.post(RuntimeRead(unknown) if topic is Topic.RUNTIME else ImagesRead(unknown))

    def seconds_to(self, topic: Topic, now: Instant) -> float:
        """Return the seconds until a topic is to be read: an event makes it soon."""
        wait = super().seconds_to(topic, now)
        if topic is Topic.RUNTIME and self._happened.is_set() and self._looked is not None:
            wait = min(wait, max(0.0, EVENT_PAUSE - now.seconds_since(self._looked)))
        return wait

    def _read_runtime(self, at: Instant) -> str:
        # Cleared before the look: an event during it causes another.
        self._happened.clear()
        self._looked = at
        client = self._connect()
        runtime = client.read(self._know_version(client, at))
        self.post(RuntimeRead(seen(runtime, at)))
        return f"{runtime.version} answers, CRI {runtime.api}"

    def _read_images(self, at: Instant) -> str:
        self.post(ImagesRead(seen(self._connect().list_images(), at)))
        return "listed"

    def _know_version(self, client: cri.CriClient, at: Instant) -> cri.RuntimeVersion:
        known = self._version
        if known is None or at.seconds_since(known[1]) >= VERSION_PERIOD:
            known = self._version = (client.version(), at)
        return known[0]

    def _connect(self) -> cri.CriClient:
        endpoint = self._find_socket()
        if not endpoint:
            raise SourceError("no socket of a container runtime was found")
        if self._client is None or endpoint != self._endpoint:
            if self._client is not None:
                self._client.close()
            self._version = None
            self._endpoint = endpoint
            self._client = cri.CriClient(endpoint, timeout=self._timeout)
        return self._client

    def _note_event(self) -> None:
        self._happened.set()
        self.wake()


class RuntimeEvents(SourceThread):
    """Wait for container events where the runtime streams them, and call ``note`` at each.

    It posts nothing: an event only says that a look is worth while. ``find_client`` returns the
    client that last worked or None.
    """

    def __init__(
        self,
        clock: Clock,
        find_client: Callable[[], cri.CriClient | None],
        note: Callable[[], None],
    ) -> None:
        super().__init__("runtime-events", lambda _fact: None, clock)
        self._find_client = find_client
        self._note = note
        self._stream: unix_grpc.Stream | None = None

    def stop(self, timeout: float = 2.0) -> None:
        """End the stream and the thread."""
        self.stopping.set()
        stream = self._stream
        if stream is not None:
            stream.cancel()
        super().stop(timeout)

    def step(self) -> float:
        """Read one stream to its end and return the seconds until the next is opened."""
        client = self._find_client()
        if client is None or self.stopping.is_set():
            return STREAM_PAUSE
        try:
            with client.container_events(STREAM_SECONDS) as stream:
                self._stream = stream
                self._listen(stream)
        except RejectedError as error:
            return NO_STREAM_PAUSE if error.status == unix_grpc.UNIMPLEMENTED else STREAM_PAUSE
        except SourceError:
            return STREAM_PAUSE
        finally:
            self._stream = None
        return STREAM_PAUSE

    def report_failure(self, why: str) -> None:
        """Post nothing: what this thread says is never more than "look"."""

    def _listen(self, stream: unix_grpc.Stream) -> None:
        # Looked at after self._stream is set: stop() sets it before it looks for a stream.
        if self.stopping.is_set():
            return
        for _event in stream:
            self._note()
