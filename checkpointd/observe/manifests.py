"""See the static-pod directory, ours and foreign; and the directories where people speak to us.

inotify says when a look is worth it; a full look every 20 s needs no inotify. Nothing here writes:
foreign files are read only to know which pods they name.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from checkpointd import log
from checkpointd.clients import inotify, static_pods
from checkpointd.clock import Clock
from checkpointd.errors import SourceError, StoreError
from checkpointd.model.moments import Instant, Seen, Unknown, seen
from checkpointd.model.observation import Fact, ManifestFile, ManifestsRead, OverridesRead
from checkpointd.observe.manager import FROZEN
from checkpointd.observe.source import SourceThread

LOOK_SECONDS = 20.0
"""The kubelet's own fileCheckFrequency (K-4)."""
BATCH_SECONDS = 0.05
"""Least time between two looks: a burst of changes is one."""

ReadOverrides = Callable[[], OverridesRead]


class ManifestSource(SourceThread):
    """Post ManifestsRead and OverridesRead; tell ``frozen_changed`` of the freeze file.

    ``directory`` gives the static-pod directory (or single file) as it is known now, "" while it is
    not. It answers no questions: it always looks.
    """

    def __init__(
        self,
        post: Callable[[Fact], None],
        clock: Clock,
        *,
        directory: Callable[[], str],
        overrides: tuple[Path, ReadOverrides],
        run: Path,
        frozen_changed: Callable[[], None],
    ) -> None:
        super().__init__("manifests", post, clock)
        self._directory = directory
        self._overrides, self._read_overrides = str(overrides[0]), overrides[1]
        self._run_directory = str(run)
        self._frozen_changed = frozen_changed
        self._watch = inotify.DirectoryWatch()
        self._reader = static_pods.ManifestReader()
        self._changed: frozenset[str] = frozenset()
        self._looked_at: Instant | None = None
        self._path = ""
        self._absent_since: Instant | None = None
        self._complaint = ""

    @property
    def why_polling(self) -> str:
        """Return why changes are found only by looking; "" where inotify works."""
        return self._watch.why_not

    def look_now(self) -> None:
        """Look at once: the directory may be another one."""
        with self.lock:
            self._looked_at = None
        self.wake()

    def step(self) -> float:
        """Look if it is time or something changed."""
        now = self.clock.now()
        path = self._directory().rstrip("/")
        if not path.startswith("/"):
            path = ""
        due = self._is_due(now) or path != self._path
        if path != self._path:
            self._path, self._absent_since = path, None
        # First the watch, then the look: what changes between is seen again, not missed.
        self._watch.watch(self._directories(path))
        changed, self._changed = self._changed, frozenset()
        if due or path in changed or path.rpartition("/")[0] in changed:
            self._look(path, now)
        if due or self._overrides in changed:
            self._look_at_overrides()
        if self._run_directory in changed:
            self._frozen_changed()
        return self._pause(now, busy=bool(changed))

    def report_failure(self, why: str) -> None:
        """Post Unknown."""
        self.post(ManifestsRead(Unknown(why, self.clock.now())))

    def wait(self, seconds: float) -> None:
        """Wait for a change, a wake, or ``seconds``."""
        self._changed |= self._watch.wait(seconds)

    def wake(self) -> None:
        """End the present wait."""
        self._watch.wake()

    def close(self) -> None:
        """Close the descriptors, after ``stop``."""
        self._watch.close()

    def _is_due(self, now: Instant) -> bool:
        with self.lock:
            due = self._looked_at is None or now.seconds_since(self._looked_at) >= LOOK_SECONDS
            if due:
                self._looked_at = now
        return due

    def _directories(self, path: str) -> Mapping[str, inotify.Wanted]:
        wanted: dict[str, inotify.Wanted] = {
            self._overrides: _is_visible,
            self._run_directory: _is_frozen_file,
        }
        if path:
            # The directory may come, go and be replaced: that is an event of the one above it.
            above, _, name = path.rpartition("/")
            wanted.setdefault(above, lambda changed: changed == name)
        if Path(path).is_dir():
            wanted[path] = _is_visible
        return wanted

    def _pause(self, now: Instant, *, busy: bool) -> float:
        if busy:
            # Not a wait for anything: what comes in meanwhile is taken together.
            self.stopping.wait(BATCH_SECONDS)
        with self.lock:
            passed = LOOK_SECONDS if self._looked_at is None else now.seconds_since(self._looked_at)
        return max(0.0, LOOK_SECONDS - passed)

    def _look(self, path: str, at: Instant) -> None:
        if not path:
            self.post(ManifestsRead(Unknown("the static-pod directory is not known yet", at)))
            return
        place = static_pods.judge_place(Path(path))
        notes = (place.note, _tell_polling(self.why_polling))
        self.post(
            ManifestsRead(
                self._read(Path(path), at, is_absent=place.is_absent),
                problem=place.problem,
                notes=tuple(note for note in notes if note),
            )
        )

    def _read(
        self, path: Path, at: Instant, *, is_absent: bool
    ) -> Seen[Mapping[str, ManifestFile]] | Unknown:
        """Read all; what is absent for long is empty, and what we placed there is put back.

        Not at once: who replaces the directory would move the new one into ours.
        """
        if not is_absent:
            self._absent_since = None
        elif self._absent_since is None:
            self._absent_since = at
            with self.lock:
                self._looked_at = at  # the next full look is the one that settles it
        elif at.seconds_since(self._absent_since) >= LOOK_SECONDS:
            return seen({}, at)
        try:
            return seen(self._reader.read(path), at)
        except SourceError as error:
            return Unknown(str(error), at)

    def _look_at_overrides(self) -> None:
        try:
            self.post(self._read_overrides())
            self._complaint = ""
        except StoreError as error:
            # What was read last goes on; said once.
            if str(error) != self._complaint:
                logging.getLogger(log.LOGGER).warning("overrides: %s", error)
            self._complaint = str(error)


def _tell_polling(why: str) -> str:
    if not why:
        return ""
    return (
        f"changes in the static-pod directory are found every {LOOK_SECONDS:g} s only ({why}): "
        "raise fs.inotify.max_user_instances or max_user_watches"
    )


def _is_visible(name: str) -> bool:
    return not name.startswith(".")


def _is_frozen_file(name: str) -> bool:
    return name == FROZEN
