"""Read /etc/checkpointd/checkpointd.toml and its drop-ins: frozen settings, all errors at once.

One table (``keys.KEYS``) names each option, its type, default, bounds and meaning; the parser, the
shipped file, ``checkpointd config`` and the manual are made from it. This package reads files and
writes none.
"""

from __future__ import annotations

from checkpointd.settings.keys import KEYS, Key
from checkpointd.settings.nouns import KubeletSettings, Paths, Settings
from checkpointd.settings.read import (
    DEFAULT_FILE,
    Loaded,
    load,
    load_or_last_good,
    read_paths,
    refuses_reload,
)
from checkpointd.settings.write import Effective, dump, effective, shipped

__all__ = [
    "DEFAULT_FILE",
    "KEYS",
    "Effective",
    "Key",
    "KubeletSettings",
    "Loaded",
    "Paths",
    "Settings",
    "dump",
    "effective",
    "load",
    "load_or_last_good",
    "read_paths",
    "refuses_reload",
    "shipped",
]
