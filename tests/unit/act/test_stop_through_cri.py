"""Stopping a copy through the real CRI client, on a runtime that answers over its socket."""

from __future__ import annotations

import threading
from pathlib import Path

from checkpointd.act.stop import StopCopies
from checkpointd.clients.cri import api
from checkpointd.clients.cri.client import CriClient
from tests.fakes.runtime import FakeContainer, FakeRuntime, FakeSandbox

DEADLINE = 20.0


def test_rule_9_a_copy_is_stopped_and_its_parent_is_not(tmp_path: Path) -> None:
    fake = FakeRuntime(tmp_path / "cri.sock")
    for uid in ("parent", "copy"):
        fake.add_sandbox(FakeSandbox(id=f"s-{uid}", namespace="n", name=f"p-{uid}", uid=uid))
        fake.add_container(FakeContainer(id=f"c-{uid}", sandbox_id=f"s-{uid}", name="app"))
    graces: list[tuple[str, int]] = []
    fake.on_stop_container = lambda container, grace: graces.append((container.id, grace))
    woken = threading.Event()
    with fake:
        client = CriClient(str(fake.socket))
        stops = StopCopies(lambda: client, woken.set)
        assert stops.request("copy", 7) == ""
        assert woken.wait(DEADLINE)
        client.close()
    assert graces == [("c-copy", 7)]
    assert fake.containers["c-copy"].state == api.CONTAINER_EXITED
    assert not fake.sandboxes["s-copy"].ready
    assert fake.containers["c-parent"].state == api.CONTAINER_RUNNING
    assert fake.sandboxes["s-parent"].ready


def test_a_runtime_that_is_down_is_a_failure_to_be_told(tmp_path: Path) -> None:
    client = CriClient(str(tmp_path / "absent.sock"), timeout=1.0)
    stops = StopCopies(lambda: client, lambda: None)
    stops.request("copy", 0)
    assert stops.wait("copy", DEADLINE)
    assert "absent.sock" in stops.request("copy", 0)
    assert stops.wait("copy", DEADLINE)
    client.close()
