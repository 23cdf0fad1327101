"""Ask logind, over the system bus, whether it has begun a shutdown that somebody still holds up.

A kubelet with a grace period for node shutdowns ends its pods in that time: PID 1 knows nothing of
it yet (systemd-inhibit(1), mode "delay"; pkg/kubelet/nodeshutdown).
"""

from __future__ import annotations

from pathlib import Path

from checkpointd.clients import pid1

_PREPARING = pid1.Property(
    owner="org.freedesktop.login1",
    path="/org/freedesktop/login1",
    interface="org.freedesktop.login1.Manager",
    name="PreparingForShutdown",
)


def is_going_down(bus: Path, seconds: float) -> bool:
    """Tell whether logind prepares a shutdown, within ``seconds``; ``bus`` is the bus's socket.

    Raises RefusedError (there is no bus), SilentError (no answer in time), RejectedError (there is
    no logind, or it does not know).
    """
    return pid1.read_property(bus, seconds, _PREPARING, on_bus=True) == 1
