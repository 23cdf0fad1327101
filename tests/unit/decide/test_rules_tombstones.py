"""Rule 3b: what was deleted under us is started only where nobody else could."""

from __future__ import annotations

from dataclasses import replace

import pytest

from checkpointd.model.checkpoint import Phase, Word
from checkpointd.model.observation import OwnerWord
from tests.builders import observations as build
from tests.builders.observations import at, run, seen, silent, started, unknown

UID = "uid-api-1"
REBOOTED = "boot-0"
GONE = build.word(terminating=True, bound=False)


def test_3b_an_api_servers_tombstone_starts_at_the_first_refused_connection() -> None:
    before = build.checkpoint(GONE, phase=Phase.TOMBSTONE, serves_api=True)
    refused = build.contact(refusals=1, refused_at=at(999), refused_since=at(999))
    world = build.observation(api=refused)
    assert started(run(world, before))
    assert not started(run(build.observation(), before))


@pytest.mark.parametrize(
    ("since", "refusals", "boot", "starts"),
    [
        (1000, 0, "boot-1", False),  # the daemon was only restarted, and has not tried yet
        (985, 0, "boot-1", False),  # 15 s without an answer are Unknown, but no refusal
        (969, 0, "boot-1", True),
        (999, 1, "boot-1", True),
        (1000, 0, REBOOTED, True),
    ],
)
def test_3b_an_api_servers_tombstone_waits_for_a_refusal_a_new_boot_or_30_s(
    since: float, refusals: int, boot: str, *, starts: bool
) -> None:
    before = build.checkpoint(GONE, phase=Phase.TOMBSTONE, serves_api=True, ran_in_boot=boot)
    tried = 0 if since == 1000 else 3
    lost = build.contact(reached=False, since=since, failures=tried, refusals=refusals)
    decision = run(build.observation(api=lost), before)
    assert bool(started(decision)) is starts


@pytest.mark.parametrize(("failures", "starts"), [(0, False), (1, True)])
@pytest.mark.parametrize("serves_api", [False, True])
def test_a_restarted_daemon_starts_nothing_before_it_has_tried_the_api_itself(
    failures: int, *, serves_api: bool, starts: bool
) -> None:
    # Lost at 900 s by the record; whether it came back while no daemon ran is not known.
    lost = build.contact(reached=False, since=900, failures=failures)
    world = replace(silent(), api_contact=lost)
    decision = run(world, build.checkpoint(serves_api=serves_api))
    assert bool(started(decision)) is starts


def test_3b_waits_for_no_dwell() -> None:
    before = build.checkpoint(GONE, phase=Phase.TOMBSTONE, serves_api=True, stopped_at=at(999))
    assert started(run(silent(), before))


@pytest.mark.parametrize(("since", "starts"), [(970.1, False), (969.9, True)])
def test_3b_a_daemon_sets_tombstone_starts_after_30_s_of_unknown(
    since: float,
    starts: bool,
) -> None:
    before = build.checkpoint(GONE, phase=Phase.TOMBSTONE)
    world = build.observation(api=unknown(since=since))
    assert bool(started(run(world, before))) is starts


def test_3b_is_not_for_bare_pods_nor_for_other_controllers() -> None:
    for controller in (None, build.REPLICA_SET):
        gone = build.word(build.pod(controller=controller), bound=False)
        assert not started(run(silent(), build.checkpoint(gone, phase=Phase.TOMBSTONE)))


def test_3b_a_daemon_set_that_said_no_for_5_min_is_believed() -> None:
    fields = {"phase": Phase.TOMBSTONE, "owner_word": OwnerWord.NOT_HERE}
    late = build.checkpoint(GONE, owner_word_since=at(699), **fields)
    early = build.checkpoint(GONE, owner_word_since=at(701), **fields)
    assert not started(run(silent(), late))
    assert started(run(silent(), early))


def test_3b_a_successor_here_is_waited_for() -> None:
    before = build.checkpoint(
        GONE, phase=Phase.TOMBSTONE, serves_api=True, successor=build.word("api-2")
    )
    refused = build.contact(refusals=1, refused_at=at(999))
    assert not started(run(build.observation(api=refused), before))


def test_a1_the_last_api_server_is_deleted_and_started_in_the_cycle_after_its_last_process() -> (
    None
):
    before = build.checkpoint(serves_api=True)
    terminating = build.observation(
        build.pod(terminating=True),
        runtime=build.runtime(UID),
        processes=build.processes(build.alive(UID, 7)),
        had_processes=frozenset({UID}),
    )
    after = build.saved(run(terminating, before))
    assert after is not None
    assert after.phase is Phase.TOMBSTONE
    dead = replace(
        terminating,
        api_contact=build.contact(refusals=1, refused_at=at(999)),
        processes=seen(build.processes(build.alive(UID))),
    )
    assert started(run(dead, after))


@pytest.mark.parametrize("listed", [(), ("api-1",)])
def test_a1_a_deleted_api_server_is_started_though_the_kubelet_lists_it_to_the_end(
    listed: tuple[str, ...],
) -> None:
    # bootkube#267: its pod is Running, Ready in /pods for as long as no API server answers.
    before = build.checkpoint(GONE, phase=Phase.TOMBSTONE, serves_api=True)
    refused = build.contact(refusals=1, refused_at=at(999), refused_since=at(999))
    world = build.observation(api=refused, kubelet_list=build.listing(*listed))
    assert started(run(world, before))


def test_e5_a_parent_that_ends_slowly_keeps_its_port_and_no_copy_comes_before_its_end() -> None:
    before = build.checkpoint(GONE, phase=Phase.TOMBSTONE, serves_api=True)
    refused = build.contact(refusals=1, refused_at=at(999), refused_since=at(999))
    ending = build.observation(api=refused, runtime=build.runtime(UID))
    assert not started(run(ending, before))
    assert started(run(replace(ending, runtime=seen(build.runtime())), before))


@pytest.mark.parametrize("word", [build.word(marked=False), build.word(phase="Succeeded")])
def test_the_tombstone_of_an_unmarked_or_finished_pod_is_never_started(word: Word) -> None:
    before = build.checkpoint(word, phase=Phase.TOMBSTONE, serves_api=True)
    assert not started(run(silent(), before))
