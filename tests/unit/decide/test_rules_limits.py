"""Rules 7, 11 and 12, and what an activation is made of."""

from __future__ import annotations

from dataclasses import replace

import pytest

from checkpointd.decide import decide, fold
from checkpointd.decide.timers import Timers
from checkpointd.model.checkpoint import Phase
from checkpointd.model.moments import Unknown
from checkpointd.model.observation import ManagerRead, Override, Verb
from checkpointd.model.policy import Times
from tests.builders import observations as build
from tests.builders.observations import at, effects, run, seen, silent, started, unknown

UID = "uid-api-1"
REBOOTED = "boot-0"


# ---- the dwell, the back-off, the freeze, the operator ----------
@pytest.mark.parametrize(("stopped", "starts"), [(970.1, False), (969.9, True)])
def test_b5_a_start_follows_a_stop_by_30_s(
    stopped: float,
    starts: bool,
) -> None:
    before = build.checkpoint(stopped_at=at(stopped))
    assert bool(started(run(silent(), before))) is starts


def test_a_stop_before_the_reboot_does_not_delay_a_start() -> None:
    before = build.checkpoint(stopped_at=at(999, REBOOTED), serves_api=True)
    assert started(run(silent(), before))


def test_d12_an_offer_waits_for_its_turn() -> None:
    assert not started(run(silent(), build.checkpoint(not_before=at(1000.1))))
    assert started(run(silent(), build.checkpoint(not_before=at(1000))))


@pytest.mark.parametrize(
    ("state", "file", "starts"),
    [
        (seen("stopping"), False, False),
        (seen("running"), True, True),
        (seen("degraded"), True, True),
        (seen("maintenance"), True, False),
        (unknown(), True, False),
        (unknown(), False, True),
    ],
)
def test_nothing_is_started_while_the_machine_goes_down(
    state: Unknown,
    file: bool,
    starts: bool,
) -> None:
    world = silent(manager_state=state, frozen_file=file)
    assert bool(started(run(world, build.checkpoint()))) is starts


KEY = "kube-system.ds.api"


def ordered(verb: Verb, key: str = KEY, until: str = "") -> dict[str, Override]:
    return {key: Override(verb=verb, until=until, reason="test")}


def test_d10_a_hold_stops_all_writing() -> None:
    for key in (KEY, "node"):
        assert effects(run(silent(overrides=ordered(Verb.HOLD, key)), build.checkpoint())) == ()
    serving = build.checkpoint(phase=Phase.SERVING, sandbox_ids=(f"sandbox-{UID}",))
    held = build.observation(
        build.pod(),
        runtime=build.runtime(UID),
        overrides=ordered(Verb.HOLD),
        manifests=build.manifests(serving),
    )
    assert effects(run(held, serving)) == ()


def test_d10_an_expired_hold_holds_nothing() -> None:
    world = silent(overrides=ordered(Verb.HOLD, until="2025-12-31T23:59:59Z"))
    assert started(run(world, build.checkpoint()))


def test_an_operator_starts_what_does_not_run() -> None:
    world = build.observation(build.pod(ready=False), overrides=ordered(Verb.ACTIVATE))
    assert started(run(world, build.checkpoint()))
    busy = replace(world, runtime=seen(build.runtime(UID)))
    assert not started(run(busy, build.checkpoint()))


def test_an_operator_keeps_a_copy_from_starting() -> None:
    assert not started(run(silent(overrides=ordered(Verb.DEACTIVATE)), build.checkpoint()))


# ---- which generation, which name ----------
def test_f1_the_proven_generation_is_started_not_the_newer_unproven_one() -> None:
    bad = build.generation("g2", 2, spec_proven=False, content_proven=False)
    before = build.checkpoint(generations=(build.generation(), bad))
    after = build.saved(run(silent(), before))
    assert after is not None
    assert after.activation is not None
    assert after.activation.generation == "g1"


def test_e2_each_activation_has_a_name_and_uid_of_its_own() -> None:
    seen_names: set[tuple[str, str]] = set()
    for count in range(3):
        after = build.saved(run(silent(), build.checkpoint(activations=count)))
        assert after is not None
        assert after.activation is not None
        seen_names.add((after.activation.name, after.activation.uid))
    assert len(seen_names) == 3


def test_b14_without_checkpoints_the_daemon_idles() -> None:
    decision = run(silent())
    assert effects(decision) == ()
    assert "no checkpoints" in decision.summary
    assert decision.look_again.seconds > build.NOW.seconds


def test_a_node_that_was_deleted_by_the_last_word_starts_nothing_in_silence() -> None:
    deleted = build.node_record(node_deleted_since=at(10))
    before = build.checkpoint()
    assert started(run(silent(), before))
    assert not started(decide(silent(), build.stored(before, node=deleted), build.POLICY, at(1000)))


def test_after_a_cancelled_shutdown_deadlines_run_in_full_again() -> None:
    going = ManagerRead(seen("stopping", read=990), frozen_file=False)
    staying = ManagerRead(seen("running", read=995), frozen_file=False)
    world = fold.fold(build.observation(), (going, staying), at(1000), Times())
    assert world.thawed == at(995)
    timers = Timers(at(1000), at(1), world.thawed)
    assert not timers.passed(at(100), 30)
    assert timers.pending == [at(995).plus(30)]
    assert Timers(at(1025), at(1), world.thawed).passed(at(100), 30)
