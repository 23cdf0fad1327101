"""The daemon as a service: its start, its configuration, its end, and what systemd hears of it."""

from __future__ import annotations

import signal

import pytest

from tests.fakes import workloads
from tests.fakes.api_faults import Fault
from tests.fakes.machine.processes import Processes
from tests.fakes.node import SHORT_TIMES, Node
from tests.fakes.waiting import holds_for, wait_for
from tests.integration import scenes

pytestmark = pytest.mark.integration

CONFIG_EXIT = 78
"""EX_CONFIG of sysexits.h."""


def test_a13_b14_it_is_ready_without_network_kubelet_runtime_and_api_server(
    processes: Processes,
) -> None:
    with Node(processes) as node:
        node.layout.boot_id.write_text("00000000-0000-4000-8000-000000000000\n")
        node.start_daemon()
        assert node.daemon is not None
        assert node.daemon.is_alive
        assert node.status()["kubelet"]["present"] == "no"


def test_everything_that_it_needs_is_found_from_the_kubelets_process(
    processes: Processes,
) -> None:
    with Node(processes, discovery=True, fork_daemon=False) as node:
        scenes.start(node)
        scenes.store_pod(node, "web", scenes.exclusive(node.free_port()))
        assert node.status()["node"] == node.name


def test_b6_sigterm_leaves_every_copy_and_every_file_in_place(processes: Processes) -> None:
    with Node(processes) as node:
        port = node.free_port()
        scenes.start(node)
        uid = scenes.store_pod(node, "web", scenes.exclusive(port))["metadata"]["uid"]
        copy = scenes.activate(node, uid)
        before = scenes.photograph(node.layout.manifests)
        assert node.daemon is not None
        assert node.daemon.stop() == 0
        assert node.daemon.said("STOPPING") == ["1"]
        assert scenes.photograph(node.layout.manifests) == before
        assert scenes.runs(node, copy)
        assert scenes.serves(port)()


@pytest.mark.parametrize("phase", ["stored", "serving", "tombstone"])
def test_b4_a_restart_changes_no_file_and_stops_nothing(processes: Processes, phase: str) -> None:
    with Node(processes, times={**SHORT_TIMES, "retire-store": "1h"}) as node:
        scenes.start(node)
        uid = scenes.store_pod(node, "web", scenes.exclusive(node.free_port()))["metadata"]["uid"]
        if phase == "serving":
            scenes.activate(node, uid)
        elif phase == "tombstone":
            node.api_server.store.finalise("kube-system", "web")
        scenes.wait_for_phase(node, "pod.web", phase)
        scenes.wait_until_quiet(node)
        before = _photograph(node, phase)
        for end in (signal.SIGKILL, signal.SIGTERM):
            assert node.daemon is not None
            node.daemon.child.send(end)
            node.daemon.child.wait(10)
            node.start_daemon()
            scenes.wait_for_api(node, "unknown" if phase == "serving" else "trusted")
            scenes.wait_for_phase(node, "pod.web", phase)
            scenes.wait_until_quiet(node)
        assert _photograph(node, phase) == before


def test_a_second_instance_ends_and_the_first_lives_on(processes: Processes) -> None:
    with Node(processes) as node:
        scenes.start(node)
        first = node.daemon
        assert first is not None
        node.daemon = None
        second = node.start_daemon(ready=False)
        assert second.child.wait(10) != 0
        assert f"held by process {first.pid}" in node.log()
        assert first.is_alive
        first.kill()
        first.close()


def test_a_bad_configuration_at_the_start_is_answered_with_the_last_good_one(
    processes: Processes,
) -> None:
    with Node(processes) as node:
        scenes.start(node)
        assert node.daemon is not None
        node.daemon.kill()
        good = node.layout.config.read_text()
        # The places stay: without them the last good configuration could not be found.
        node.layout.config.write_text(good + "[log]\nlevle = 3\n")
        node.start_daemon()
        scenes.wait_for_api(node, "trusted")
        assert any("levle" in alarm for alarm in scenes.alarms(node))


def test_a_bad_configuration_without_a_good_one_before_ends_with_ex_config(
    processes: Processes,
) -> None:
    with Node(processes, fork_daemon=False) as node:
        node.layout.boot_id.write_text("00000000-0000-4000-8000-000000000000\n")
        node.layout.config.write_text(node.layout.config.read_text() + "[log]\nlevle = 3\n")
        daemon = node.start_daemon(ready=False)
        assert daemon.child.wait(10) == CONFIG_EXIT
        assert "level" in node.log()


def test_a_reload_takes_the_new_configuration_whole_or_not_at_all(processes: Processes) -> None:
    with Node(processes) as node:
        scenes.start(node)
        daemon = node.daemon
        assert daemon is not None
        scenes.wait_for_api(node, "trusted")
        port = node.free_port()
        other = scenes.exclusive(port)
        good = node.layout.config.read_text()
        marked = '[selection]\nnamespaces = ["kube-system"]\n'
        node.layout.config.write_text(good + marked + "max-pods = -1\n")
        daemon.reload()
        wait_for("the bad one is refused", lambda: len(daemon.said("READY")) == 2)
        assert daemon.said("RELOADING") == ["1"]
        wait_for("there is an alarm", lambda: scenes.alarms(node))
        unmarked = {**workloads.pod("web", node.name, other), "spec": other}
        unmarked["spec"]["nodeName"] = node.name
        unmarked["metadata"] = {"name": "web", "labels": {"keep": "me"}}
        node.api.create(workloads.PODS, unmarked)
        rule = '[[selection.rule]]\nnamespace = "kube-system"\nlabels = { keep = "me" }\n'
        node.layout.config.write_text(good + rule)
        daemon.reload()
        wait_for("the good one is taken", lambda: len(daemon.said("READY")) == 3)
        scenes.wait_until_stored(node, "pod.web")
        wait_for("the alarm is over", lambda: not scenes.alarms(node))


def test_h6_the_watchdog_hears_of_cycles_that_end_and_of_nothing_else(processes: Processes) -> None:
    with Node(processes, environ={"WATCHDOG_USEC": "1000000"}) as node:
        scenes.start(node)
        daemon = node.daemon
        assert daemon is not None
        scenes.wait_for_api(node, "trusted")
        wait_for("it is heard in time", lambda: len(daemon.said("WATCHDOG")) > 3)
        # A cycle that hangs in its disk: no thread may speak for it.
        daemon.child.send(signal.SIGSTOP)
        count = len(daemon.said("WATCHDOG"))
        holds_for("silence", lambda: len(daemon.said("WATCHDOG")) <= count + 1, 1)
        daemon.child.send(signal.SIGCONT)
        wait_for("it is heard again", lambda: len(daemon.said("WATCHDOG")) > count + 2)
        # Sources that hang for longer than systemd waits hold up no cycle.
        node.api_server.break_(Fault.HANG)
        node.api_server.close_connections()
        node.runtime_fault("hang")
        node.kubelet_fault("pods")
        count = len(daemon.said("WATCHDOG"))
        wait_for("it goes on", lambda: len(daemon.said("WATCHDOG")) > count + 4)


def test_no_secret_is_in_the_log_the_status_or_the_command_line(processes: Processes) -> None:
    with Node(processes) as node:
        scenes.start(node)
        uid = scenes.store_pod(node, "web", scenes.exclusive(node.free_port()))["metadata"]["uid"]
        scenes.activate(node, uid)
        word = scenes.KEY.split()[-1].decode()
        status = (node.layout.volatile / "status.json").read_text()
        assert word not in node.log() + status
        (manifest,) = node.manifests()
        assert word not in manifest.read_text()


def test_11_a_machine_that_goes_down_starts_nothing(processes: Processes) -> None:
    with Node(processes) as node:
        scenes.start(node)
        uid = scenes.store_pod(node, "web", scenes.exclusive(node.free_port()))["metadata"]["uid"]
        assert node.manager is not None
        scenes.lose_api(node)
        scenes.restart_kubelet_offline(node)
        node.manager.state = "stopping"
        scenes.kill_program(node, uid)
        holds_for("nothing is placed", lambda: not node.manifests(), 2)
        node.manager.state = "running"
        wait_for("the shutdown was cancelled: it starts", node.manifests)


def test_12_a_held_checkpoint_stays_as_it_is_until_it_is_released(processes: Processes) -> None:
    with Node(processes) as node:
        scenes.start(node)
        uid = scenes.store_pod(node, "web", scenes.exclusive(node.free_port()))["metadata"]["uid"]
        node.override("node", "hold")
        wait_for("the order is known", lambda: node.status()["orders"])
        scenes.lose_api(node)
        scenes.restart_kubelet_offline(node)
        scenes.kill_program(node, uid)
        holds_for("nothing is placed", lambda: not node.manifests(), 2)
        node.override("node", "")
        wait_for("it starts", node.manifests)


def test_10_a_pod_that_is_not_restarted_is_refused_with_field_and_remedy(
    processes: Processes,
) -> None:
    with Node(processes) as node:
        scenes.start(node)
        spec = {**scenes.exclusive(node.free_port()), "restartPolicy": "Never"}
        scenes.create_pod(node, "job", spec)
        (refused,) = wait_for("it is refused", lambda: node.status()["refused"])
        assert refused["name"] == "job"
        assert any("restartPolicy" in str(refusal) for refusal in refused["refusals"])


def _photograph(node: Node, phase: str) -> dict[str, tuple[str, int, int]]:
    """Look at manifests and store; a tombstone's grace begins anew at a restart, by rule 5."""
    found = scenes.photograph(node.layout.manifests, node.layout.state / "checkpoints")
    is_grace = "/state.json" if phase == "tombstone" else "nothing"
    return {path: what for path, what in found.items() if is_grace not in path}
