"""Wire the daemon together: settings, store, sources, cycle, signals, sd_notify."""

from checkpointd.daemon.service import run

__all__ = ["run"]
