"""Watch directories with inotify, as a kubelet does, and judge every name that becomes visible."""

from __future__ import annotations

import ctypes
import json
import os
import select
import struct
import threading
from pathlib import Path

_EVENT = struct.Struct("iIII")
IN_MODIFY, IN_MOVED_TO, IN_CREATE = 0x2, 0x80, 0x100
"""include/uapi/linux/inotify.h."""
_CLOEXEC_NONBLOCK = os.O_CLOEXEC | os.O_NONBLOCK


class ManifestWatch:
    """Watch static-pod directories; ``faults`` are the names that were ever half a manifest.

    A file that a kubelet would read (no leading dot) must be whole from its first moment, and never
    be written to.
    """

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.seen = 0
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.inotify_init1(_CLOEXEC_NONBLOCK)
        self._paths: dict[int, Path] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="manifest watch", daemon=True)

    def __enter__(self) -> ManifestWatch:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stopping.set()
        self._thread.join()
        os.close(self._fd)

    def add(self, directory: Path) -> None:
        """Watch one more directory."""
        mask = IN_MODIFY | IN_MOVED_TO | IN_CREATE
        watch = self._libc.inotify_add_watch(self._fd, os.fsencode(directory), mask)
        if watch < 0:
            raise OSError(ctypes.get_errno(), f"inotify_add_watch {directory}")
        self._paths[watch] = directory

    def _follow(self) -> None:
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        while not self._stopping.is_set():
            if poll.poll(50):
                self._take(os.read(self._fd, 1 << 16))

    def _take(self, content: bytes) -> None:
        while content:
            watch, mask, _, length = _EVENT.unpack_from(content)
            name = content[_EVENT.size : _EVENT.size + length].rstrip(b"\0").decode()
            content = content[_EVENT.size + length :]
            if name and not name.startswith("."):
                self.seen += 1
                self._judge(self._paths[watch] / name, mask)

    def _judge(self, path: Path, mask: int) -> None:
        if mask & IN_MODIFY:
            self.faults.append(f"{path} was written to while it could be seen")
        try:
            pod: object = json.loads(path.read_bytes())
        except FileNotFoundError:
            return
        except ValueError as error:
            self.faults.append(f"{path} is no JSON: {error}")
            return
        if not isinstance(pod, dict):
            self.faults.append(f"{path} is no pod")
