"""Be the daemon: from the settings to the last cycle. SIGTERM leaves every copy in place."""

from __future__ import annotations

import logging
import os
import signal
import sys
from pathlib import Path
from types import FrameType

from checkpointd import __version__, log
from checkpointd import settings as settings_file
from checkpointd.clients import journal, notify
from checkpointd.clients.notify import Notifier
from checkpointd.clock import Clock
from checkpointd.daemon.wiring import Wiring
from checkpointd.errors import ConfigError, NewerSchemaError, StoreError
from checkpointd.model.moments import Instant
from checkpointd.settings import Loaded, Settings
from checkpointd.store.checkpoints import CheckpointStore
from checkpointd.store.durable import Disk
from checkpointd.store.walk import Directory

LONGEST_WAIT = 10.0
"""Seconds between cycles at most, where no watchdog asks for more."""
SLOW_START = 3.0
"""Seconds from exec to READY that are told of: at a boot the kubelet waits for them."""


def run(config_file: Path, disk: Disk | None = None) -> int:
    """Be the daemon until SIGTERM or SIGINT and return the exit code.

    ``disk`` makes all durable changes; tests hand in one that fails. A faulty configuration is
    answered with the last good one and an alarm; raises ConfigError only where there is none, and
    StoreError for a store that is locked, newer, or cannot be opened.
    """
    notifier = notify.take_notifier()
    log.set_up(journal.choose_handler(os.environ, sys.stderr), "info")
    loaded = settings_file.load_or_last_good(config_file)
    service = Service(config_file, loaded, disk or Disk(), notifier)
    return service.run()


UNKNOWN_MARKS = (
    "[selection] changes, and what it would unmark is not known while no API server answers; "
    "if that is meant: systemctl restart checkpointd"
)


class Service:
    """Hold the daemon's life: start, cycles, reloads, end."""

    def __init__(self, config_file: Path, loaded: Loaded, disk: Disk, notifier: Notifier) -> None:
        self.config_file = config_file
        self.settings = loaded.settings
        self.notifier = notifier
        self.disk = disk
        self._logger = log.set_up(
            journal.choose_handler(os.environ, sys.stderr), self.settings.log_level
        )
        self._config_alarms = _alarms_of(loaded)
        self._ending = False
        self._reloading = False
        self._wiring: Wiring | None = None

    def run(self) -> int:
        """Lock the store, load it, and run cycles until told to end. Raises StoreError."""
        clock = Clock(self.settings.paths.boot_id)
        called = clock.now()
        store = CheckpointStore(self.settings.paths.state, self.disk)
        with store.lock():
            stored = store.load()
            self._keep_last_good()
            loaded = clock.now()
            self._wiring = Wiring(lambda: self.settings, clock, store, stored, self.disk)
            self._wiring.on_finished(self._finished)
            self._wiring.cycle.alarms = self._config_alarms
            self._catch_signals()
            self._logger.info(
                "checkpointd %s: checkpoints in %s: %d", __version__, store.root,
                len(stored.checkpoints), extra=log.fields(log.Event.STARTED),
            )  # fmt: skip
            try:
                self._start(self._wiring, called, loaded)
                self._live(self._wiring)
            finally:
                self._wiring.stop()
        return 0

    def _start(self, wiring: Wiring, called: Instant, loaded: Instant) -> None:
        """Write the first starts and say that we are ready.

        ``called`` is when the program had been loaded, ``loaded`` when the store had been read.
        """
        wiring.start()
        wiring.cycle.first()
        self.notifier.ready("started")
        process = wiring.procfs.read_process(os.getpid())
        began = called if process is None else process.started(called.boot_id)
        now = wiring.clock.now()
        if now.seconds_since(began) >= SLOW_START:
            self._logger.warning(
                "slow start: %.1f s (%.1f s until the program was loaded, %.1f s for the store, "
                "%.1f s for the first look); at a boot the kubelet waits for it, 10 s at most",
                now.seconds_since(began), called.seconds_since(began),
                loaded.seconds_since(called), now.seconds_since(loaded),
                extra=log.fields(log.Event.STARTED),
            )  # fmt: skip

    def _live(self, wiring: Wiring) -> None:
        while not self._ending:
            if self._reloading:
                self._reload(wiring)
            wiring.cycle.run_once(self._at_most(wiring))
        self.notifier.stopping("stopping; copies stay as they are")
        stopped = log.fields(log.Event.STOPPED)
        self._logger.info("stopping; copies stay as they are", extra=stopped)

    def _at_most(self, wiring: Wiring) -> float:
        ping = self.notifier.ping_seconds or LONGEST_WAIT
        return min(LONGEST_WAIT, ping, 1.0 if wiring.display.pending else LONGEST_WAIT)

    def _finished(self, sentence: str) -> None:
        self.notifier.status(sentence)
        self.notifier.ping()

    # ---- signals ---------------------------------------------------------------------------------
    def _catch_signals(self) -> None:
        signal.signal(signal.SIGTERM, self._end)
        signal.signal(signal.SIGINT, self._end)
        signal.signal(signal.SIGHUP, self._ask_reload)

    def _end(self, _number: int, _frame: FrameType | None) -> None:
        self._ending = True
        self._wake()

    def _ask_reload(self, _number: int, _frame: FrameType | None) -> None:
        self._reloading = True
        self._wake()

    def _wake(self) -> None:
        if self._wiring is not None:
            self._wiring.mailbox.wake()

    # ---- configuration ---------------------------------------------------------------------------
    def _reload(self, wiring: Wiring) -> None:
        """Take over a new configuration whole, or not at all."""
        self._reloading = False
        self.notifier.reloading()
        try:
            new = settings_file.load(self.config_file)
            refusal = settings_file.refuses_reload(self.settings, new, *wiring.marked_slots(new))
            if new.policy.selection != self.settings.policy.selection and not wiring.knows_marks:
                refusal = refusal or UNKNOWN_MARKS
        except ConfigError as error:
            refusal = str(error)
            new = self.settings
        if refusal:
            self._refuse(wiring, refusal)
        else:
            self._take_over(wiring, new)
        self.notifier.ready("reloaded" if not refusal else "reload refused, see the journal")

    def _refuse(self, wiring: Wiring, refusal: str) -> None:
        alarm = f"reload refused, the settings before hold: {refusal}"
        wiring.cycle.alarms = (alarm,)
        self._logger.error("%s", alarm, extra=log.fields(log.Event.SETTINGS, reason=refusal))

    def _take_over(self, wiring: Wiring, new: Settings) -> None:
        self.settings = new
        wiring.cycle.policy = new.policy
        wiring.cycle.alarms = self._config_alarms = ()
        self._logger.setLevel(log.NOTICE if new.log_level == "notice" else new.log_level.upper())
        wiring.relist()
        self._keep_last_good()
        self._logger.info("configuration reloaded", extra=log.fields(log.Event.SETTINGS))

    def _keep_last_good(self) -> None:
        """Keep the settings in force for a start with a faulty configuration."""
        if self._config_alarms:
            return
        file = self.settings.paths.last_good_file
        try:
            with Directory.open(file.parent) as directory:
                content = settings_file.dump(self.settings).encode()
                self.disk.save_file(directory, file.name, content)
        except NewerSchemaError:
            raise
        except StoreError as error:
            self._logger.warning("the settings are not kept: %s", error)


def _alarms_of(loaded: Loaded) -> tuple[str, ...]:
    logger = logging.getLogger(log.LOGGER)
    alarms = tuple(
        f"faulty configuration, the last good one holds: {problem}" for problem in loaded.problems
    )
    for alarm in alarms:
        logger.error("%s", alarm, extra=log.fields(log.Event.SETTINGS, reason=alarm))
    return alarms
