"""Say of one slot what would happen next, and when if it waits for nothing but time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from checkpointd.decide import deadlines
from checkpointd.decide.scene import Scene
from checkpointd.model.checkpoint import Checkpoint, Phase
from checkpointd.model.evidence import Api, Evidence, Is, Order, Owner, Want
from checkpointd.model.moments import Instant
from checkpointd.model.status import NextStatus

Deadline = Callable[[Checkpoint, Scene], bool]

ORDERED: dict[Order, str] = {
    Order.HOLD: "nothing until the operator's hold ends",
    Order.DEACTIVATE: "nothing is started until the operator's order ends",
}


def come(checkpoint: Checkpoint, found: Evidence, scene: Scene) -> NextStatus:
    """Say what comes next. A moment is named only where nothing but its passing is missing."""
    if found.frozen:
        return NextStatus(what="nothing until the machine is up again")
    if found.order is Order.HOLD or (
        found.order is Order.DEACTIVATE and not checkpoint.phase.is_active
    ):
        return NextStatus(what=ORDERED[found.order])
    return _of_phase(checkpoint, found, scene)


def _of_phase(checkpoint: Checkpoint, found: Evidence, scene: Scene) -> NextStatus:
    match checkpoint.phase:
        case Phase.OFFERED:
            return NextStatus(
                what="the kubelet starts the copy; if it does not, the copy is offered again",
                at=_when(deadlines.is_deadline_over, checkpoint, scene),
            )
        case Phase.SERVING:
            return NextStatus(
                what="steps aside when the API server is trusted and the real pod may start"
            )
        case Phase.YIELDING:
            return NextStatus(
                what="waits for the copy to end and the real pod to be ready; if it does not come "
                "up, the copy returns",
                at=_when(deadlines.is_deadline_over, checkpoint, scene),
            )
        case Phase.STOPPING:
            return NextStatus(what="waits for the copy to end")
        case _ if found.want is not Want.HERE:
            return _of_unwanted(checkpoint, found, scene)
        case _:
            return _of_wanted(checkpoint, found, scene)


def _of_unwanted(checkpoint: Checkpoint, found: Evidence, scene: Scene) -> NextStatus:
    what = "all of it is removed, once a consistent list agrees that nobody wants it"
    if found.want is Want.ENDING and (
        found.serves_api or found.owner in (Owner.WANTS, Owner.UNREADABLE)
    ):
        what = f"a copy starts if the API server is lost too; otherwise {what}"
    return NextStatus(what=what, at=_when(deadlines.is_grace_over, checkpoint, scene))


def _of_wanted(checkpoint: Checkpoint, found: Evidence, scene: Scene) -> NextStatus:
    if found.runs is Is.YES:
        return NextStatus(
            what="nothing while it runs; a copy starts when it does not run, nobody restarts it "
            "and no API server answers"
        )
    if found.api is Api.UNKNOWN and found.runs is Is.NO and found.managed is Is.NO:
        return NextStatus(
            what="a copy starts, unless the API server answers or somebody starts the pod",
            at=_start(checkpoint, scene),
        )
    return NextStatus(
        what="a copy starts when the pod does not run, nobody restarts it and no API server answers"
    )


def _start(checkpoint: Checkpoint, scene: Scene) -> Instant | None:
    """Return when hold, dwell and back-off are all over, None where that is not a matter of time.

    A hold that is not over and names no moment waits for something else (the network, a try).
    """
    hold = scene.timers.fresh()
    if not deadlines.is_hold_over(checkpoint, replace(scene, timers=hold)) and not hold.pending:
        return None
    dwell = _when(deadlines.is_dwell_over, checkpoint, scene)
    back_off = scene.timers.fresh()
    back_off.reached(checkpoint.not_before)
    each = [moment for moment in (hold.first, dwell, back_off.first) if moment is not None]
    return max(each, key=lambda moment: moment.seconds, default=None)


def _when(deadline: Deadline, checkpoint: Checkpoint, scene: Scene) -> Instant | None:
    """Return the moment for which one deadline waits, None if it is over or waits for none."""
    timers = scene.timers.fresh()
    deadline(checkpoint, replace(scene, timers=timers))
    return timers.first
