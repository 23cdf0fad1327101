# What checkpointd may use of pyinotify 0.9.6, which brings no types. AsyncNotifier is not here:
# some distributions drop it on Python 3.12 and later.

import threading
from collections.abc import Callable, Iterable

ALL_EVENTS: int
IN_ACCESS: int
IN_ATTRIB: int
IN_CLOSE_NOWRITE: int
IN_CLOSE_WRITE: int
IN_CREATE: int
IN_DELETE: int
IN_DELETE_SELF: int
IN_DONT_FOLLOW: int
IN_EXCL_UNLINK: int
IN_IGNORED: int
IN_ISDIR: int
IN_MASK_ADD: int
IN_MODIFY: int
IN_MOVED_FROM: int
IN_MOVED_TO: int
IN_MOVE_SELF: int
IN_ONESHOT: int
IN_ONLYDIR: int
IN_OPEN: int
IN_Q_OVERFLOW: int
IN_UNMOUNT: int

class PyinotifyError(Exception): ...
class UnsupportedLibcVersionError(PyinotifyError): ...

class InotifyBindingNotFoundError(PyinotifyError):
    def __init__(self) -> None: ...

class NotifierError(PyinotifyError):
    def __init__(self, err: str) -> None: ...

class WatchManagerError(Exception):
    wmd: dict[str, int]
    def __init__(self, msg: str, wmd: dict[str, int]) -> None: ...

class Event:
    wd: int
    mask: int
    maskname: str
    path: str
    name: str
    pathname: str
    cookie: int
    dir: bool
    src_pathname: str

class ProcessEvent:
    def __init__(self, pevent: Callable[[Event], object] | None = ..., **kargs: object) -> None: ...
    def my_init(self, **kargs: object) -> None: ...
    def __call__(self, event: Event) -> object: ...
    def process_default(self, event: Event) -> object: ...

class WatchManager:
    def __init__(self, exclude_filter: Callable[[str], bool] = ...) -> None: ...
    def close(self) -> None: ...
    def get_fd(self) -> int: ...
    def add_watch(
        self,
        path: str | Iterable[str],
        mask: int,
        proc_fun: Callable[[Event], object] | None = ...,
        rec: bool = ...,
        auto_add: bool = ...,
        do_glob: bool = ...,
        quiet: bool = ...,
        exclude_filter: Callable[[str], bool] | None = ...,
    ) -> dict[str, int]: ...
    def rm_watch(
        self, wd: int | Iterable[int], rec: bool = ..., quiet: bool = ...
    ) -> dict[int, bool]: ...
    def get_wd(self, path: str) -> int | None: ...
    def get_path(self, wd: int) -> str | None: ...

class Notifier:
    def __init__(
        self,
        watch_manager: WatchManager,
        default_proc_fun: Callable[[Event], object] | None = ...,
        read_freq: float = ...,
        threshold: int = ...,
        timeout: int | None = ...,
    ) -> None: ...
    def proc_fun(self) -> Callable[[Event], object]: ...
    def coalesce_events(self, coalesce: bool = ...) -> None: ...
    # Milliseconds; None waits for ever, or for the timeout of the constructor.
    def check_events(self, timeout: int | None = ...) -> bool: ...
    def read_events(self) -> None: ...
    def process_events(self) -> None: ...
    def loop(
        self, callback: Callable[[Notifier], bool | None] | None = ..., daemonize: bool = ...
    ) -> None: ...
    def stop(self) -> None: ...

class ThreadedNotifier(threading.Thread, Notifier):
    def __init__(
        self,
        watch_manager: WatchManager,
        default_proc_fun: Callable[[Event], object] | None = ...,
        read_freq: float = ...,
        threshold: int = ...,
        timeout: int | None = ...,
    ) -> None: ...
    def stop(self) -> None: ...
