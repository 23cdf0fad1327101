"""Kill the daemon before and after every system call that it makes to a disk, and start it again.

One snapshot, one activation, one hand-back and one removal: in each of the four, the daemon of lane
n is killed at its n-th call. Then it is started anew and must come to where it would have been. The
lanes of a batch stand on one node; inotify watches what a kubelet could ever see of manifests.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fakes import workloads
from tests.fakes.directory_watch import ManifestWatch
from tests.fakes.machine.processes import Processes
from tests.fakes.node import SHORT_TIMES, Node
from tests.fakes.waiting import NotYetError, wait_for
from tests.integration import scenes
from tests.integration.lanes import Lane

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

TIMES = {
    **SHORT_TIMES,
    "start-deadline": "1m",
    "hand-back": "1m",
    "min-dwell": 0,
    "silent-for": "10s",
}
PATIENCE = 60.0
BATCH = 25
LANES = 100


@dataclass(frozen=True)
class Act:
    """Describe one of the four: ``lanes`` is more than the number of its system calls."""

    name: str
    lanes: int
    prepare: Callable[[Node], None]
    is_done: Callable[[Lane], bool]


@pytest.mark.parametrize("first", range(1, LANES + 1, BATCH))
@pytest.mark.parametrize("moment", ["before", "after"])
def test_d2_d4_a_daemon_killed_at_any_system_call_converges_when_it_is_started_again(
    processes: Processes, moment: str, first: int, record_property: Callable[[str, object], None]
) -> None:
    with ExitStack() as stack:
        node = stack.enter_context(Node(processes))
        watch = stack.enter_context(ManifestWatch())
        scenes.start_without_daemon(node)
        lanes = [_make_lane(node, watch, number) for number in range(first, first + BATCH)]
        for lane in lanes:
            stack.callback(lane.close)
        for act in [act for act in ACTS if act.lanes >= first]:
            act.prepare(node)
            killed = _perform(act, moment, lanes)
            record_property(f"killed {moment} a system call of one {act.name}", killed)
        assert not watch.faults


def _make_lane(node: Node, watch: ManifestWatch, number: int) -> Lane:
    times = "\n".join(f'{name} = "{value}"' if isinstance(value, str) else f"{name} = {value}"
                      for name, value in TIMES.items())  # fmt: skip
    lane = Lane(node, number, times)
    watch.add(lane.manifests)
    return lane


def _perform(act: Act, moment: str, lanes: list[Lane]) -> int:
    """Kill each lane's daemon at its fault point, let it recover, and return how many died."""
    for lane in lanes:
        lane.start(moment, lane.number)
    dead = _wait_for_all(act, lanes, may_die=True)
    for lane in dead:
        lane.start()
    _wait_for_all(act, dead, may_die=False)
    # The last of all was not reached: every call had its lane.
    assert act.lanes not in [lane.number for lane in dead], f"{act.name} needs more lanes"
    return len(dead)


def _wait_for_all(act: Act, lanes: list[Lane], *, may_die: bool) -> list[Lane]:
    """Wait until each lane is done, and end it; return those that died before."""
    going, dead = list(lanes), list[Lane]()

    def have_ended() -> bool:
        for lane in list(going):
            if lane.is_dead:
                assert may_die, f"lane {lane.number}: {lane.log.read_text()}"
                dead.append(lane)
            elif act.is_done(lane):
                lane.kill()
            else:
                continue
            going.remove(lane)
        if going:
            raise NotYetError(f"{[lane.number for lane in going]}, of which {_tell(going[0])}")
        return True

    wait_for(f"{act.name}: all lanes are done", have_ended, PATIENCE, every=0.1)
    return dead


def _tell(lane: Lane) -> str:
    placed = [path.name for path in lane.placed()]
    return f"{lane.checkpoint().get('phase')}, {placed}, {lane.leftovers()}"


# ---- the four acts -------------------------------------------------------------------------------
def _create_parent(node: Node) -> None:
    # One volume: a second one would only add system calls of the same kinds.
    mount = {"name": "site", "mountPath": "/srv"}
    app = {"name": "app", "image": "registry.example/app:1", "command": ["app"]}
    spec = {
        "containers": [{**app, "volumeMounts": [mount]}],
        "volumes": [{"name": "site", "configMap": {"name": "site"}}],
    }
    scenes.create_pod(node, "web", spec)
    wait_for("the parent is ready", lambda: _is_parent_ready(node))


def _is_parent_ready(node: Node) -> bool:
    found = scenes.find_pod(node, "web")
    return found is not None and workloads.is_ready(found)


def _is_stored(lane: Lane) -> bool:
    checkpoint = lane.checkpoint()
    if not checkpoint.get("generations") or checkpoint.get("phase") != "stored":
        return False
    (generation,) = checkpoint["generations"]
    slot = lane.state / "checkpoints" / "kube-system" / "pod.web"
    _expect_bytes(slot / "content" / "site" / generation["contents"]["site"] / "index.html")
    return (slot / "generations" / str(generation["hash"]) / "meta.json").exists()


def _let_parent_die_unseen(node: Node) -> None:
    found = scenes.find_pod(node, "web")
    assert found is not None
    node.api_server.stop()
    scenes.restart_kubelet_offline(node)
    scenes.kill_program(node, found["metadata"]["uid"], "app")


def _is_serving(lane: Lane) -> bool:
    checkpoint = lane.checkpoint()
    if checkpoint.get("phase") != "serving" or len(lane.placed()) != 1:
        return False
    uid = checkpoint["activation"]["uid"]
    (active,) = lane.active()
    assert active.name == uid
    _expect_bytes(active / "site" / "index.html")
    return scenes.runs(lane.node, uid, "app")


def _let_api_return(node: Node) -> None:
    node.api_server.start()
    wait_for("the parent is ready", lambda: _is_parent_ready(node))


def _is_handed_back(lane: Lane) -> bool:
    checkpoint = lane.checkpoint()
    return checkpoint.get("phase") == "stored" and not (lane.placed() or lane.active())


def _delete_parent(node: Node) -> None:
    node.api.delete(f"{workloads.PODS}/web")
    wait_for("the parent has gone", lambda: scenes.find_pod(node, "web") is None)


def _is_removed(lane: Lane) -> bool:
    return not [*lane.state.glob("checkpoints/*/*"), *lane.leftovers()]


def _expect_bytes(path: Path) -> None:
    assert path.read_text() == scenes.SITE


ACTS = (
    Act("snapshot", LANES, _create_parent, _is_stored),
    Act("activation", 75, _let_parent_die_unseen, _is_serving),
    Act("hand-back", 50, _let_api_return, _is_handed_back),
    Act("removal", 50, _delete_parent, _is_removed),
)
