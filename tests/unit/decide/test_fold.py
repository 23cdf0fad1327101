"""The fold counts answers and refusals, and keeps since when each thing has been so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from checkpointd.decide import fold, scene, tidying
from checkpointd.model import observation as facts
from checkpointd.model.checkpoint import NodeRecord
from checkpointd.model.decision import Question, Topic
from checkpointd.model.evidence import Api
from checkpointd.model.moments import Seen, Unknown
from checkpointd.model.observation import ContainerState, Fact, Observation
from checkpointd.model.policy import Times
from tests.builders import observations as build
from tests.builders.observations import at, seen, unknown

TIMES = Times()


def told(before: Observation, *new: Fact, now: float = 1000) -> Observation:
    return fold.fold(before, new, at(now), TIMES)


def answered(seconds: float) -> Fact:
    return facts.ApiAnswered(at(seconds), "192.0.2.1", local=False)


def refused(seconds: float) -> Fact:
    return facts.ApiRefused(at(seconds), "refused")


def silent(seconds: float) -> Fact:
    return facts.ApiSilent(at(seconds), "timeout")


def judged(world: Observation) -> Api:
    return scene.judge_api(world, build.node_record())


WELL = build.observation(build.pod())
LOST = build.observation(api=unknown(since=900))


# ---- contact ----------
def test_one_refused_connection_is_no_loss_but_no_trust_either() -> None:
    assert judged(told(WELL, refused(1000))) is Api.REFUSED


@pytest.mark.parametrize(("second", "api"), [(1002.0, Api.UNKNOWN), (1002.1, Api.REFUSED)])
def test_two_refused_connections_within_2_s_are_a_loss(second: float, api: Api) -> None:
    assert judged(told(WELL, refused(1000), refused(second), now=second)) is api


def test_an_answer_between_two_refusals_makes_the_first_forgotten() -> None:
    after = told(WELL, refused(1000), answered(1000.5), refused(1001), now=1001)
    assert judged(after) is Api.REFUSED
    assert after.api_contact.refusals == 1


@pytest.mark.parametrize(("now", "reached"), [(1014.9, True), (1015.0, False)])
def test_15_s_without_an_answer_are_a_loss(now: float, reached: bool) -> None:
    after = told(told(WELL, silent(1000)), now=now)
    assert after.api_contact.reached is reached


def test_the_loss_counts_from_the_first_try_without_an_answer() -> None:
    after = told(told(WELL, silent(1000)), now=1015)
    assert after.api_contact.unknown_since == at(1000)


@pytest.mark.parametrize(("second", "reached"), [(1009.9, False), (1010.0, True)])
def test_two_answers_10_s_apart_are_contact(second: float, reached: bool) -> None:
    after = told(LOST, answered(1000), answered(second), now=second)
    assert after.api_contact.reached is reached


def test_a_failure_between_two_answers_makes_the_first_forgotten() -> None:
    after = told(LOST, answered(1000), silent(1005), answered(1011), now=1011)
    assert not after.api_contact.reached


def test_any_answer_breaks_unknown() -> None:
    after = told(LOST, answered(1000), silent(1001), now=1001)
    assert after.api_contact.unknown_since == at(1001)


def test_b1_the_loss_of_contact_makes_world_and_list_unknown() -> None:
    after = told(WELL, refused(1000), refused(1001))
    assert isinstance(after.world, Unknown)
    assert isinstance(after.api_pods, Unknown)


def test_b1_a_list_of_a_contact_that_did_not_last_is_not_believed_in_the_next() -> None:
    brief = told(
        LOST,
        answered(1000),
        facts.WorldRead(seen(build.world(), read=1000)),
        facts.ApiPodsRead(seen((), read=1000)),
        silent(1001),
        answered(1100),
        answered(1111),
        facts.WorldRead(seen(build.world(), read=1111)),
        now=1111,
    )
    assert brief.api_contact.reached
    assert judged(brief) is Api.ANSWERING


def test_trust_needs_world_and_list() -> None:
    for name in ("world", "api_pods"):
        change: dict[str, Unknown] = {name: unknown("429")}
        assert judged(replace(WELL, **change)) is Api.ANSWERING  # type: ignore[arg-type]  # one of two fields
    assert judged(WELL) is Api.TRUSTED


@pytest.mark.parametrize(
    ("fields", "api"),
    [
        ({}, Api.TRUSTED),
        ({"node_uid": "new"}, Api.TRUSTED),
        ({"node_found": False}, Api.NODE_DELETED),
        ({"anchor_uid": "other"}, Api.FOREIGN),
        ({"anchor_uid": "other", "node_found": False}, Api.FOREIGN),
        ({"anchor": "", "anchor_uid": ""}, Api.TRUSTED),
        ({"anchor": "", "anchor_uid": "", "node_uid": "new"}, Api.FOREIGN),
        ({"anchor": "", "anchor_uid": "", "node_found": False}, Api.FOREIGN),
        ({"anchor": "namespace", "anchor_uid": "service-uid", "node_uid": "new"}, Api.FOREIGN),
    ],
    ids=str,
)
def test_b1b_the_world_is_known_by_its_uids(fields: dict[str, str], api: Api) -> None:
    assert judged(replace(WELL, world=seen(build.world(**fields)))) is api


# ---- a restart of the daemon ----------
def test_contact_lost_in_this_boot_stays_lost_since_then_over_a_restart() -> None:
    record = build.node_record(in_contact=False, contact_changed=at(700))
    assert fold.initial(at(1000), record).api_contact.unknown_since == at(700)


@pytest.mark.parametrize(
    "record",
    [
        build.node_record(in_contact=True),
        build.node_record(in_contact=False, contact_changed=at(700, "boot-0")),
        None,
    ],
    ids=["in contact", "another boot", "first run"],
)
def test_else_unknown_begins_at_our_start(record: NodeRecord | None) -> None:
    assert fold.initial(at(1000), record).api_contact.unknown_since == at(1000)


@pytest.mark.parametrize(
    ("record", "new_boot"),
    [
        (build.node_record(boot_id="boot-0"), True),
        (build.node_record(), False),
        (None, False),
    ],
    ids=["another boot", "the same boot", "first run"],
)
def test_only_after_a_boot_it_is_certain_that_no_kubelet_was_here(
    record: NodeRecord | None,
    new_boot: bool,
) -> None:
    begun = fold.initial(at(1000), record)
    assert (begun.kubelet_in_boot, begun.runtime_in_boot) == (not new_boot, not new_boot)


# ---- since, and what a restarted kubelet makes old ----------
def test_what_stays_the_same_keeps_its_since() -> None:
    same = facts.RuntimeRead(seen(build.runtime(), read=1000, since=1000))
    after = told(WELL, same).runtime
    assert isinstance(after, Seen)
    assert (after.at, after.since) == (at(1000), at(20))


def test_what_changes_gets_a_new_since() -> None:
    other = facts.RuntimeRead(seen(build.runtime("uid-x"), read=1000, since=1000))
    after = told(WELL, other).runtime
    assert isinstance(after, Seen)
    assert after.since == at(1000)


def test_unknown_keeps_since_when_it_has_been_unknown() -> None:
    world = replace(WELL, runtime=unknown("first", 900))
    after = told(world, facts.RuntimeRead(unknown("then", 1000)))
    assert after.runtime == Unknown("then", at(900))
    assert "runtime" not in after.available


def test_a_kubelet_that_was_restarted_has_no_list_yet() -> None:
    new = facts.MachineRead(seen(build.machine(build.kubelet(started=995, pid=200)), read=1000))
    assert isinstance(told(WELL, new).kubelet_list, Unknown)


def test_k18_the_kubelets_start_is_known_as_the_runtime_counts_time() -> None:
    first = told(
        WELL, facts.MachineRead(seen(build.machine(build.kubelet(started=400)), read=1000))
    )
    again = told(
        first, facts.MachineRead(seen(build.machine(build.kubelet(started=400)), read=1600))
    )
    assert again.kubelet_started_ns == first.kubelet_started_ns == build.WALL_NS - 600 * 10**9
    new = facts.MachineRead(seen(build.machine(build.kubelet(started=995)), read=1000))
    assert told(again, new).kubelet_started_ns == build.WALL_NS - 5 * 10**9


def test_a_kubelet_that_was_restarted_while_nobody_looked_has_no_list_yet() -> None:
    blind = told(WELL, facts.MachineRead(unknown()))
    new = facts.MachineRead(seen(build.machine(build.kubelet(started=995, pid=200)), read=1000))
    assert isinstance(told(blind, new).kubelet_list, Unknown)


def test_a_name_that_was_listed_is_remembered_with_its_time() -> None:
    name = (build.NAMESPACE, "api-1")
    less = facts.KubeletListRead(seen(frozenset[tuple[str, str]](), read=1000))
    after = told(WELL, less).kubelet_list
    assert isinstance(after, Seen)
    assert after.value.last_listed == {name: at(999)}
    assert after.value.answering_since == at(20)


def test_the_lease_counts_as_watched_only_while_it_is_read_often() -> None:
    once = told(WELL, facts.LeaseRead(seen("a", read=1000)))
    assert once.available["lease"] == at(1000)
    again = told(once, facts.LeaseRead(seen("b", read=1010)), now=1010)
    assert again.available["lease"] == at(1000)
    late = told(again, facts.LeaseRead(seen("c", read=1100)), now=1100)
    assert late.available["lease"] == at(1100)


def test_processes_that_were_seen_are_remembered_sandboxes_are_not() -> None:
    world = replace(WELL, runtime=seen(build.runtime("uid-x")))
    view = build.processes(
        build.alive("uid-a", 1),
        build.alive("uid-x", 2, leaf="sandbox-uid-x"),
        build.alive("uid-p", 3, only_pause=True),
    )
    assert told(world, facts.ProcessesRead(seen(view))).had_processes == {"uid-a"}


def test_file_bytes_that_are_stored_are_dropped() -> None:
    world = replace(WELL, candidates={"uid-api-1": seen(build.candidate())})
    kept = tidying.tidy(world, build.stored(build.checkpoint()), frozenset())
    assert kept.candidates == {}


def test_an_exit_is_dated_by_the_first_look_that_showed_it() -> None:
    ended = build.container("uid-1", ContainerState.EXITED, id="c1")
    runs = build.container("uid-1", id="c2", name="other")
    looks = [
        facts.RuntimeRead(seen(build.runtime(containers=[ended, runs]), read=read))
        for read in (1000, 1005)
    ]
    world = fold.fold(build.observation(), looks, at(1010), Times())
    assert world.exits == {"c1": at(1000)}
    gone = facts.RuntimeRead(seen(build.runtime(containers=[runs]), read=1020))
    assert fold.fold(world, (gone,), at(1020), Times()).exits == {}


def test_half_an_order_does_not_lift_the_hold_that_it_was() -> None:
    hold = facts.Override(verb=facts.Verb.HOLD, until="", reason="")
    held = replace(build.observation(), overrides={"node": hold, "a.b": hold})
    half = facts.OverridesRead({}, ("bad",), unread=frozenset({"node"}))
    assert told(held, half).overrides == {"node": hold}
    lost = facts.OverridesRead({}, ("EIO",), all_unread=True)
    assert told(held, lost).overrides == {"node": hold, "a.b": hold}
    assert told(held, facts.OverridesRead({})).overrides == {}


def test_why_something_was_not_read_is_no_news_once_nobody_asks_for_it() -> None:
    failed = unknown("refused", 900)
    world = replace(WELL, lease=failed, running_pods=failed, images=failed)
    asked = frozenset({Question(Topic.LEASE), Question(Topic.IMAGES)})
    kept = tidying.tidy(world, build.stored(), asked)
    assert (kept.lease, kept.images) == (failed, failed)
    assert kept.running_pods == unknown(facts.NOT_YET_READ, 900)
    assert tidying.tidy(kept, build.stored(), asked) is kept


def test_what_ran_when_somebody_last_asked_is_no_answer_the_next_time() -> None:
    """An old "it does not run" would start a copy beside a pod that was started since."""
    world = replace(WELL, running_pods=seen(frozenset({"a"})), images=seen(frozenset({"b"})))
    asked = frozenset({Question(Topic.RUNNING_PODS), Question(Topic.IMAGES)})
    assert tidying.tidy(world, build.stored(), asked) is world
    later = tidying.tidy(world, build.stored(), frozenset())
    assert later.running_pods == later.images == unknown(facts.NOT_YET_READ, 999)
