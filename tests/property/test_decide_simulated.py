"""Whatever happens to a node, and wherever the daemon dies, all comes right and nothing is unsafe.

Each example is a random history of a small node (``tests.simulation``): safety is checked at each
action, progress at the end, when everything stands still.
"""

from __future__ import annotations

import os

from hypothesis import given, settings
from hypothesis import strategies as st

from checkpointd.model.checkpoint import Checkpoint, Phase
from checkpointd.model.files import CopyKind
from checkpointd.model.observation import Verb
from tests.simulation import surroundings
from tests.simulation.node import Event, Node
from tests.simulation.surroundings import Workload

NAMES = ("api", "proxy", "dns", "web", "ingress")
WAITS = (0, 2, 4, 10, 30, 60, 130, 310)


def _named(name: str, *arguments: object) -> Event:
    def event(node: Node) -> None:
        getattr(node, name)(*arguments)

    event.__name__ = f"{name}{arguments}"
    return event


API_EVENTS = [_named("api_goes", how) for how in ("ok", "refused", "silent", "429")]
POD_EVENTS = [
    _named(verb, name)
    for verb in ("delete", "unwant", "want", "crash_container", "rotate")
    for name in NAMES
]
MARK_EVENTS = [_named("mark", name, marked) for name in NAMES for marked in (True, False)]
ORDER_EVENTS = [_named("order", name, verb) for name in NAMES for verb in (*Verb, None)]
ODD_EVENTS = [
    *(_named("surge", name) for name in NAMES),
    *(_named("cut_kubelet_off", cut) for cut in (True, False)),
    *(_named("break_disk", broken) for broken in (True, False)),
]
MACHINE_EVENTS = [
    *(_named("restart_kubelet", pause) for pause in (0, 30)),
    *(_named("power_cut", pause) for pause in (0, 10, 100)),
    _named("restart_daemon"),
    *(_named("crash_daemon", after) for after in (0, 1, 2, 3, 5)),
    *(
        _named(verb, source)
        for verb in ("blindfold", "see")
        for source in ("runtime", "kernel", "manifests", "kubelet", "machine")
    ),
    *(_named("manager_becomes", state) for state in ("stopping", "running")),
    _named("remove_by_hand"),
]
WORLD_EVENTS = [_named("world_becomes", what) for what in ("known", "foreign", "deleted")]


def histories(*events: Event) -> st.SearchStrategy[list[tuple[int, Event]]]:
    """Return histories: after so many seconds, this happens."""
    step = st.tuples(st.sampled_from(WAITS), st.sampled_from(events))
    return st.lists(step, min_size=1, max_size=14)


def live(node: Node, history: list[tuple[int, Event]]) -> None:
    """Live through a history after a good start."""
    node.run(100)
    for wait, event in history:
        node.run(wait)
        node.log.append(f"{node.boot}/{node.now} == {event.__name__}")
        event(node)


def settle(node: Node) -> None:
    """Let all stand still, the API server as it is; check that nothing moves at last."""
    node.blind.clear()
    node.manager, node.orders, node.broken_disk = "running", {}, False
    node.crash_after = None
    node.run(200)
    node.run(2600, tick=8)
    node.done = 0
    node.log.append(f"{node.boot}/{node.now} == quiet")
    node.run(300, tick=8)
    assert not node.done, _story(node, "still acts")


def check_progress(node: Node) -> None:
    """Check that every workload is served or gone, as the API's word is (design, section 3)."""
    for work in node.workloads if not node.cut_off else ():
        checkpoint = node.stored.checkpoints.get(work.slot)
        if node.answers() and node.api == "ok" and node.world == "known":
            _check_in_contact(node, work, checkpoint)
        elif checkpoint is not None and node.world != "deleted":
            _check_alone(node, work, checkpoint)


def _check_in_contact(node: Node, work: Workload, checkpoint: Checkpoint | None) -> None:
    here = [p for p in node.api_pods.values() if p.slot == work.slot and not p.terminating]
    running = [p for p in node.processes.values() if p.slot == work.slot and p.running]
    copies = [p for p in running if p.is_copy]
    if here:
        assert running, _story(node, f"{work.name} does not run")
        if checkpoint and checkpoint.failed_heir in {pod.uid for pod in here}:
            return  # the copy stays until another pod comes (rule 4)
        assert not copies, _story(node, f"{work.name} runs as a copy")
        marked = any(pod.marked for pod in here)
        assert (checkpoint is not None) is marked, _story(node, f"{work.name} marked {marked}")
    elif not work.serves:
        assert not running, _story(node, f"{work.name} runs, but is not wanted")
        assert checkpoint is None, _story(node, f"{work.name} is still stored")
    if checkpoint is not None and here:
        assert checkpoint.phase is Phase.STORED, _story(node, f"{work.name} {checkpoint.phase}")


def _check_alone(node: Node, work: Workload, checkpoint: Checkpoint) -> None:
    running = [p for p in node.processes.values() if p.slot == work.slot and p.running]
    assert len(running) <= 1 or work.kind is CopyKind.SHAREABLE, _story(node, "run twice")
    parent = checkpoint.parent
    wanted = parent.bound and parent.marked and not parent.terminating
    ending = node.known.get(parent.uid)
    if ending is not None and ending.terminating:
        return  # the kubelet lists it and starts it no more: rule 3d, not built yet
    if wanted and not node.answers():
        assert running, _story(node, f"{work.name} is wanted and does not run")


def _story(node: Node, what: str) -> str:
    state = {
        slot.name: (c.phase.value, c.parent.name, c.parent.bound, c.parent.terminating)
        for slot, c in node.stored.checkpoints.items()
    }
    truth = {p.uid: (p.running, p.attempts) for p in node.processes.values()}
    pods = {p.name: (p.marked, p.terminating) for p in node.api_pods.values()}
    lines = [*node.log[-60:], f"{state=}", f"{truth=}", f"{pods=}", f"{list(node.placed)=}"]
    return "\n".join([what, *lines])


EXAMPLES = 6
"""Per history and run of the suite: each run looks somewhere else (CHECKPOINTD_SOAK: many more)."""
SOAK = settings(max_examples=EXAMPLES * int(os.environ.get("CHECKPOINTD_SOAK", "1")))
WELL_MARKED = (*API_EVENTS, *POD_EVENTS, *MACHINE_EVENTS)


def _live_and_check(workloads: tuple[Workload, ...], history: list[tuple[int, Event]]) -> None:
    node = Node(workloads, check_unknown=True)
    live(node, history)
    settle(node)
    if node.world == "known":
        check_progress(node)


@given(history=histories(*WELL_MARKED))
@SOAK
def test_a_node_beside_other_masters_is_safe_and_comes_right(
    history: list[tuple[int, Event]],
) -> None:
    _live_and_check((surroundings.PROXY, surroundings.DNS, surroundings.WEB), history)


@given(history=histories(*WELL_MARKED))
@SOAK
def test_the_only_master_is_safe_and_comes_right(history: list[tuple[int, Event]]) -> None:
    _live_and_check((surroundings.API, surroundings.PROXY), history)


@given(history=histories(*WELL_MARKED, *MARK_EVENTS, *WORLD_EVENTS))
@SOAK
def test_no_world_and_no_mark_makes_the_node_unsafe(history: list[tuple[int, Event]]) -> None:
    _live_and_check((surroundings.API, surroundings.DNS, surroundings.WEB), history)


@given(history=histories(*WELL_MARKED, *ORDER_EVENTS, *ODD_EVENTS))
@SOAK
def test_orders_surges_broken_disks_and_a_kubelet_that_is_cut_off_come_right(
    history: list[tuple[int, Event]],
) -> None:
    _live_and_check((surroundings.PROXY, surroundings.INGRESS, surroundings.WEB), history)
