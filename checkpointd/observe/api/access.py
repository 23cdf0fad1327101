"""Say how the API server is reached: what the two threads are handed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from checkpointd.clients.credentials import Credentials
from checkpointd.clients.kube import Timeouts
from checkpointd.errors import SourceError
from checkpointd.model.selection import Selection


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiAccess:
    """Hold what is asked anew whenever it is needed: a reload or a discovery counts at once.

    ``credentials`` may raise SourceError. ``find_node_name`` returns "" while it is not known.
    ``find_listeners`` returns the UIDs of the pods that listen on a TCP port, None if that cannot
    be known. ``own_addresses`` are this host's, in their shortest form;
    loopback ones need not be among them.
    """

    credentials: Callable[[], Credentials]
    find_node_name: Callable[[], str]
    selection: Callable[[], Selection]
    find_listeners: Callable[[int], frozenset[str] | None]
    own_addresses: Callable[[], frozenset[str]] = frozenset
    timeouts: Timeouts = field(default_factory=Timeouts)

    def node_name(self) -> str:
        """Return the name of this node. Raises SourceError while it is not known."""
        name = self.find_node_name()
        if not name:
            raise SourceError("the node's name is not known yet")
        return name
