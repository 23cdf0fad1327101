"""Tell which pods listen on a port, and remember whose sockets they are.

To find the owner of a socket is to read the descriptors of all processes, 20 ms with 110 pods, and
each event of a node's own API server asks. A socket's inode is its own as long as it is open: while
the same sockets listen and each is where it was found, the answer is what it was.
"""

from __future__ import annotations

from dataclasses import dataclass

from checkpointd.clients.proc import Holder, Procfs


@dataclass(frozen=True, slots=True)
class _Found:
    """Hold who holds the listening sockets of a port: at least one process for each of them."""

    sockets: frozenset[str]
    holders: tuple[Holder, ...]


class Listeners:
    """Find listeners, from one thread."""

    def __init__(self, procfs: Procfs) -> None:
        self._procfs = procfs
        self._found: _Found | None = None

    def find(self, port: int) -> frozenset[str] | None:
        """Return what ``Procfs.find_listeners`` would return."""
        sockets = self._procfs.list_listening(port)
        if sockets is None:
            return None
        found = self._found
        if found is None or found.sockets != sockets or not self._holds(found):
            holders = self._procfs.find_holders(sockets)
            if holders is None:
                return None
            self._found = found = _Found(sockets, (*holders, *self._of_the_host(sockets, holders)))
            if not _is_whole(found):
                self._found = None
        return frozenset(holder.pod for holder in found.holders if holder.pod is not None)

    def _holds(self, found: _Found) -> bool:
        return all(self._procfs.still_holds(holder) for holder in found.holders)

    def _of_the_host(
        self, sockets: frozenset[str], holders: tuple[Holder, ...]
    ) -> tuple[Holder, ...]:
        """Find who holds what no pod does: looked for once, in place of each time in vain."""
        left = sockets - {holder.socket for holder in holders}
        return self._procfs.find_holders(left, of_pods=False) or ()


def _is_whole(found: _Found) -> bool:
    return found.sockets == frozenset(holder.socket for holder in found.holders)
