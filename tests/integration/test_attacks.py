"""Attacks on the daemon as a process: what is hostile, missing, full, or stands still."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.fakes import workloads
from tests.fakes.machine.processes import Processes
from tests.fakes.node import SHORT_TIMES, Node
from tests.fakes.waiting import holds_for, wait_for
from tests.integration import scenes

pytestmark = pytest.mark.integration


# ---- the static-pod directory --------------------------------------------------------------------
def test_d14_a_single_file_in_the_place_of_the_static_pod_directory_is_not_fatal(
    processes: Processes,
) -> None:
    with Node(processes) as node:
        scenes.start(node)
        scenes.store_pod(node, "web", scenes.shareable(node.free_port()))
        assert node.daemon is not None
        assert node.daemon.stop() == 0
        node.layout.manifests.rename(node.layout.root / "away")
        node.layout.manifests.write_text("kind: Pod\n")
        node.start_daemon()
        scenes.wait_for_api(node, "trusted")
        scenes.wait_for_phase(node, "pod.web", "stored")


def test_d2_hostile_files_in_the_static_pod_directory_hide_nothing(processes: Processes) -> None:
    with Node(processes) as node:
        port = node.free_port()
        scenes.start(node)
        uid = scenes.store_pod(node, "web", scenes.shareable(port))["metadata"]["uid"]
        make_hostile(node.layout.manifests)
        scenes.activate(node, uid)
        wait_for("the copy serves", scenes.serves(port))
        assert "hunter2" not in node.log()
        assert "Traceback" not in node.log()


def make_hostile(directory: Path) -> None:
    """Put there what is no manifest, in many ways."""
    (directory / "tag.yaml").write_text("!!bool hunter2\n")
    (directory / "int.yaml").write_text("!!int ''\n")
    (directory / "deep.yaml").write_text("[" * 5000)
    (directory / "list.json").write_text("[1, 2]")
    (directory / "number.json").write_text('{"a": ' + "9" * 5000 + "}")
    (directory / os.fsdecode(b"not-utf8-\xff.yaml")).write_text("kind: Pod\n")
    (directory / "new\nline.yaml").write_text("kind: Pod\n")
    (directory / ".hidden").write_text("x")
    (directory / "dangling").symlink_to("/nonexistent")
    (directory / "loop").symlink_to("loop")
    (directory / "dir").mkdir()
    (directory / "checkpointd.kube-system.x.yaml").write_text("{")
    os.mkfifo(directory / "fifo")


def test_d14_h3_the_static_pod_directory_may_be_taken_away_and_be_replaced_by_a_link(
    processes: Processes,
) -> None:
    with Node(processes) as node:
        port = node.free_port()
        scenes.start(node)
        uid = scenes.store_pod(node, "web", scenes.shareable(port))["metadata"]["uid"]
        node.layout.manifests.rename(node.layout.root / "real")
        node.layout.manifests.symlink_to(node.layout.root / "real")
        scenes.activate(node, uid)
        wait_for("the copy serves", scenes.serves(port))


# ---- standing still ------------------------------------------------------------------------------
def test_a_daemon_that_stood_still_believes_nothing_that_it_saw_before(
    processes: Processes,
) -> None:
    with Node(processes) as node:
        port = node.free_port()
        scenes.start(node)
        scenes.store_daemon_set(node, "web", scenes.exclusive(port))
        daemon = node.daemon
        assert daemon is not None
        daemon.child.send(signal.SIGSTOP)
        (pod,) = workloads.ready_pods(node, "web")
        node.api.delete(f"{workloads.PODS}/{pod['metadata']['name']}")
        wait_for("there is another", lambda: _has_other(node, pod["metadata"]["uid"]))
        daemon.child.send(signal.SIGCONT)
        holds_for("nothing is placed", lambda: not node.manifests(), 2)
        scenes.wait_for_phase(node, "ds.web", "stored")


def _has_other(node: Node, uid: str) -> bool:
    return any(pod["metadata"]["uid"] != uid for pod in workloads.ready_pods(node, "web"))


# ---- configuration -------------------------------------------------------------------------------
def test_a_reload_of_the_selection_is_refused_while_no_api_server_answers(
    processes: Processes,
) -> None:
    with Node(processes) as node:
        scenes.start(node)
        scenes.store_pod(node, "web", scenes.shareable(node.free_port()))
        scenes.lose_api(node)
        daemon = node.daemon
        assert daemon is not None
        good = node.layout.config.read_text()
        node.layout.config.write_text(good + '[selection]\nnamespaces = ["other"]\n')
        daemon.reload()
        wait_for("it is refused", lambda: len(daemon.said("READY")) == 2)
        wait_for("there is an alarm", lambda: any("[selection]" in a for a in scenes.alarms(node)))
        node.layout.config.write_text(good)
        daemon.reload()
        wait_for("what changes nothing is taken", lambda: len(daemon.said("READY")) == 3)
        wait_for("the alarm is over", lambda: not any("reload" in a for a in scenes.alarms(node)))


def test_settings_reloaded_after_a_faulty_start_are_the_last_good_ones(
    processes: Processes,
) -> None:
    with Node(processes) as node:
        scenes.start(node)
        assert node.daemon is not None
        node.daemon.stop()
        good = node.layout.config.read_text()
        node.layout.config.write_text(good + "[log]\nlevle = 3\n")
        daemon = node.start_daemon()
        node.layout.config.write_text(good + '[log]\nlevel = "debug"\n')
        daemon.reload()
        wait_for("it is taken", lambda: len(daemon.said("READY")) == 2)
        kept = node.layout.state / "settings.last-good.toml"
        wait_for("it is kept", lambda: '"debug"' in kept.read_text())


# ---- hostile pods --------------------------------------------------------------------------------
def test_hostile_pods_take_nothing_from_the_others(processes: Processes) -> None:
    times = {**SHORT_TIMES, "retire-store": "1h"}
    with Node(processes, times=times) as node:
        port = node.free_port()
        scenes.start(node)
        store = node.api_server.store
        for number, hostile in enumerate(hostile_metadata()):
            made = workloads.pod(f"hostile-{number}", node.name, scenes.shareable(node.free_port()))
            made["metadata"] |= hostile
            node.api.create(workloads.PODS, made)
        assert store is not None
        uid = scenes.store_pod(node, "web", scenes.shareable(port))["metadata"]["uid"]
        scenes.activate(node, uid)
        wait_for("the copy serves", scenes.serves(port))
        assert "Traceback" not in node.log()


def hostile_metadata() -> list[dict[str, object]]:
    """Return metadata that whoever may create pods can choose."""
    mark = {"checkpointer.alpha.coreos.com/checkpoint-of": "x", "checkpointd.io/slot": "../../x"}
    marked = {"checkpointd.io/checkpoint": "true"}
    owner = {"apiVersion": "apps/v1", "controller": True, "uid": "u"}
    return [
        {"annotations": {**marked, **mark}},
        {"annotations": {**marked, "checkpointd.io/activation-priority": "9" * 5000}},
        {"annotations": {**marked, "x": "\u2028\x1b[2J\n"}},
        {"annotations": marked, "ownerReferences": [{**owner, "kind": "DaemonSet", "name": ".."}]},
        {
            "annotations": marked,
            "ownerReferences": [{**owner, "kind": "DaemonSet", "name": "a" * 253}],
        },
        {"annotations": marked, "name": "b" * 200},
        {"annotations": marked, "name": "c" * 63 + "." + "d" * 63},
    ]
