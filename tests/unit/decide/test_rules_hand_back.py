"""Rule 4: the copy steps aside, and returns when nobody takes over."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from checkpointd.model.checkpoint import Checkpoint, Phase
from checkpointd.model.decision import (
    RemoveActive,
    RemoveManifest,
    SaveCheckpoint,
)
from checkpointd.model.files import CopyKind
from checkpointd.model.observation import ContainerState, Observation, Override, Verb
from checkpointd.model.pods import ApiPod
from tests.builders import observations as build
from tests.builders.observations import COPY_UID, at, effects, phase_of, run, seen, unknown

UID = "uid-api-1"
IMAGES = frozenset({"registry.example/api:1"})
PARENT = build.pod(ready=False)
SERVING = build.checkpoint(phase=Phase.SERVING, sandbox_ids=(f"sandbox-{COPY_UID}",))


def serving(**fields: Any) -> Checkpoint:
    return replace(SERVING, **fields)


def beside(of: Checkpoint = SERVING, *pods: ApiPod, **fields: Any) -> Observation:
    """Return a node in contact on which the copy runs and the parent's sandbox is READY."""
    plain: dict[str, Any] = {
        "runtime": build.runtime(COPY_UID, sandboxes=[build.sandbox(UID)]),
        "images": IMAGES,
        "manifests": build.manifests(of),
    }
    return build.observation(*(pods or (PARENT,)), **{**plain, **fields})


# ---- when it steps aside ----------
def test_an_exclusive_copy_goes_when_the_other_could_start_at_once() -> None:
    decision = run(beside(), SERVING)
    assert phase_of(decision, SERVING) is Phase.YIELDING
    assert effects(decision) == (SaveCheckpoint, RemoveManifest)


@pytest.mark.parametrize(
    "missing",
    [
        {"images": frozenset({"registry.example/other:1"})},
        {"images": unknown()},
        {"kubelet_list": build.listing()},
        {"runtime": build.runtime(COPY_UID)},
        {"runtime": build.runtime(COPY_UID, sandboxes=[build.sandbox(UID, ready=False)])},
        {"api_pods": unknown("429")},
        {"world": build.world(anchor_uid="other", node_uid="other")},
        {"manager_state": "stopping"},
    ],
    ids=str,
)
def test_an_exclusive_copy_stays_while_anything_is_missing(missing: dict[str, Any]) -> None:
    assert phase_of(run(beside(**missing), SERVING), SERVING) is Phase.SERVING


@pytest.mark.parametrize(
    ("since", "watched", "goes"),
    [(989, 950, True), (989, 970, False), (970, 950, False)],
)
def test_the_lease_stands_in_for_the_kubelets_list_once_it_was_renewed_for_40_s(
    since: float,
    watched: float,
    goes: bool,
) -> None:
    world = beside(
        kubelet_list=unknown("401"),
        lease=seen("renewed", since=since, read=999),
        available={"runtime": at(20), "lease": at(watched)},
    )
    assert (phase_of(run(world, SERVING), SERVING) is Phase.YIELDING) is goes


def test_an_exclusive_copy_waits_for_init_containers() -> None:
    parent = replace(PARENT, init_containers=frozenset({"prepare"}))
    assert phase_of(run(beside(SERVING, parent), SERVING), SERVING) is Phase.SERVING
    done = build.runtime(
        COPY_UID,
        sandboxes=[build.sandbox(UID)],
        containers=[
            build.container(UID, ContainerState.EXITED, name="prepare"),
            build.container(UID, ContainerState.EXITED, name="main", id="second"),
        ],
    )
    decision = run(beside(SERVING, parent, runtime=done), SERVING)
    assert phase_of(decision, SERVING) is Phase.YIELDING


def trusted_since(seconds: float, world: Observation) -> Observation:
    """Return the world with an API server that has been in contact since then."""
    return replace(world, api_contact=replace(world.api_contact, reached_since=at(seconds)))


@pytest.mark.parametrize(
    ("attempt", "exited", "goes"),
    [
        (0, 999.5, False),
        (0, 992.0, True),
        (1, 992.1, False),
        (1, 992.0, True),
        (2, 982.1, False),
        (2, 982.0, True),
        (6, 702.1, False),
        (6, 702.0, True),
        (3_000_000_000, 702.0, True),
    ],
)
def test_b3_an_exclusive_copy_goes_2_s_before_the_kubelets_next_try(
    attempt: int, exited: float, *, goes: bool
) -> None:
    crashed = build.runtime(
        COPY_UID,
        sandboxes=[build.sandbox(UID)],
        containers=[build.container(UID, ContainerState.EXITED, attempt=attempt, id="last")],
    )
    world = trusted_since(701, beside(runtime=crashed, exits={"last": at(exited)}))
    assert (phase_of(run(world, SERVING), SERVING) is Phase.YIELDING) is goes


@pytest.mark.parametrize(
    ("made", "contact", "goes"),
    [("sandbox", 990, True), ("container", 990, True), ("", 990, False), ("", 600, True)],
)
def test_k18_a_sandbox_from_before_the_kubelets_start_says_nothing_of_the_others_volumes(
    made: str, contact: float, *, goes: bool
) -> None:
    # Seen on a real node: it had still to read the secrets, from the API server that just went.
    new, old = build.WALL_NS, build.WALL_NS - 60 * 10**9
    sandbox = build.sandbox(UID, created_ns=new if made == "sandbox" else old)
    running = build.container(UID, id="again", created_ns=new if made == "container" else old)
    ran = replace(running, state=ContainerState.EXITED)
    picture = build.runtime(COPY_UID, sandboxes=[sandbox], containers=[ran])
    world = trusted_since(
        contact, beside(runtime=picture, kubelet_started_ns=build.WALL_NS - 30 * 10**9)
    )
    assert (phase_of(run(world, SERVING), SERVING) is Phase.YIELDING) is goes


@pytest.mark.parametrize(("exited", "goes"), [(995.6, False), (995.4, True)])
def test_b3_a_copy_that_writes_and_ends_slowly_goes_so_much_earlier(
    exited: float, *, goes: bool
) -> None:
    writes = (build.generation(writable_host_path=True),)
    copy = serving(stop_seconds=5.0, generations=writes)
    crashed = build.runtime(
        COPY_UID,
        sandboxes=[build.sandbox(UID)],
        containers=[build.container(UID, ContainerState.EXITED, attempt=1, id="last")],
    )
    world = trusted_since(701, beside(copy, runtime=crashed, exits={"last": at(exited)}))
    assert (phase_of(run(world, copy), copy) is Phase.YIELDING) is goes


def test_e10_an_exclusive_copy_does_not_wait_for_ever_for_the_kubelets_next_try() -> None:
    crashed = build.runtime(
        COPY_UID,
        sandboxes=[build.sandbox(UID)],
        containers=[build.container(UID, ContainerState.EXITED, attempt=6, id="last")],
    )
    world = trusted_since(700, beside(runtime=crashed, exits={"last": at(999)}))
    assert phase_of(run(world, SERVING), SERVING) is Phase.YIELDING


def test_a3b_a_copy_stays_while_the_runtime_does_not_answer() -> None:
    decision = run(beside(runtime=unknown("Unimplemented", since=10)), SERVING)
    assert effects(decision) == ()
    assert any("runtime does not answer" in reason.sentence for reason in decision.reasons)


def test_a3c_the_copy_goes_when_the_runtime_is_back_with_the_parent_ready() -> None:
    parent = build.pod()
    world = beside(SERVING, parent, runtime=build.runtime(UID, COPY_UID))
    assert phase_of(run(world, SERVING), SERVING) is Phase.YIELDING


def test_a_shareable_copy_stays_until_the_other_is_ready() -> None:
    copy = serving(kind=CopyKind.SHAREABLE)
    assert phase_of(run(beside(copy), copy), copy) is Phase.SERVING
    ready = beside(copy, build.pod(), runtime=build.runtime(COPY_UID, UID))
    assert phase_of(run(ready, copy), copy) is Phase.YIELDING


def test_a_copy_stays_when_the_api_calls_a_pod_ready_that_does_not_run_here() -> None:
    # A kubelet that is cut off renews no status: what the API calls Ready is what it was.
    copy = serving(kind=CopyKind.SHAREABLE)
    assert phase_of(run(beside(copy, build.pod()), copy), copy) is Phase.SERVING


def test_3c_a_blocking_copy_stays_while_the_kubelet_is_cut_off() -> None:
    copy = serving(kind=CopyKind.BLOCKING)
    world = beside(
        copy, kubelet_list=build.listing(), lease=seen("renewed at 880", since=890, read=995)
    )
    assert phase_of(run(world, copy), copy) is Phase.SERVING


def test_b11_e5_a_blocking_copy_goes_as_soon_as_the_api_is_trusted() -> None:
    copy = serving(kind=CopyKind.BLOCKING)
    rejected = build.pod(ready=False, phase="Failed", reason="NodePorts")
    bare = beside(copy, rejected, kubelet_list=build.listing(), images=unknown())
    assert phase_of(run(bare, copy), copy) is Phase.YIELDING


@pytest.mark.parametrize(
    ("took", "serves", "goes"), [(0.5, False, False), (0.6, False, True), (0.6, True, False)]
)
def test_a_copy_that_was_slow_to_end_goes_when_the_other_is_bound_but_for_the_api_server(
    took: float, serves: bool, goes: bool
) -> None:
    # Without the API server the kubelet could not read the files of the other's volumes.
    copy = serving(stop_seconds=took, serves_api=serves)
    world = beside(copy, runtime=build.runtime(COPY_UID))
    assert (phase_of(run(world, copy), copy) is Phase.YIELDING) is goes
    ready = beside(copy)
    assert phase_of(run(ready, copy), copy) is Phase.YIELDING


def test_b3_b11_a_copy_of_a_deleted_pod_goes_at_once_for_its_successor() -> None:
    successor = build.pod("api-2", ready=False)
    world = beside(
        SERVING,
        successor,
        runtime=build.runtime(COPY_UID, sandboxes=[build.sandbox(successor.uid)]),
    )
    decision = run(world, SERVING)
    after = build.saved(decision)
    assert after is not None
    assert (after.phase, after.parent.name) == (Phase.YIELDING, "api-2")


def test_s12_a_terminating_pod_is_not_handed_back_to() -> None:
    ending = build.pod(ready=True, terminating=True)
    assert phase_of(run(beside(SERVING, ending), SERVING), SERVING) is Phase.SERVING


def test_a8_a_parent_that_only_flaps_does_not_end_the_copy() -> None:
    # READY is the API's word on the pod; a container that is merely up is no reason to go.
    copy = serving(kind=CopyKind.SHAREABLE)
    world = beside(copy, runtime=build.runtime(COPY_UID, UID))
    assert phase_of(run(world, copy), copy) is Phase.SERVING


@pytest.mark.parametrize("kind", [CopyKind.SHAREABLE, CopyKind.EXCLUSIVE])
@pytest.mark.parametrize("witness", ["runtime", "kernel"])
def test_ready_of_a_container_that_has_ended_is_no_reason_to_go(
    kind: CopyKind, witness: str
) -> None:
    # The API is back with its word from before the outage; the next attempt is up for a moment.
    copy = serving(kind=kind)
    crashing = build.container(UID, id="second", attempt=1)
    seen_by: dict[str, dict[str, Any]] = {
        "runtime": {
            "runtime": build.runtime(
                COPY_UID, sandboxes=[build.sandbox(UID, ready=False)], containers=[crashing]
            )
        },
        "kernel": {
            "runtime": unknown(),
            "processes": build.processes(
                build.alive(UID, 7, leaf="second"), build.alive(COPY_UID, 8)
            ),
        },
    }
    world = beside(copy, build.pod(), **seen_by[witness])
    assert phase_of(run(world, copy), copy) is Phase.SERVING
    told = build.pod(ready_containers=frozenset({"second"}))
    world = replace(world, api_pods=seen((told,)), ready_since={UID: at(900)})
    stays = kind is CopyKind.EXCLUSIVE and witness == "kernel"  # rule 4: the runtime is not seen
    assert phase_of(run(world, copy), copy) is (Phase.SERVING if stays else Phase.YIELDING)


def test_the_heir_for_which_the_hand_back_failed_is_not_tried_again() -> None:
    copy = serving(failed_heir=UID)
    assert phase_of(run(beside(copy), copy), copy) is Phase.SERVING


def test_a_new_uid_is_tried_at_once() -> None:
    copy = serving(failed_heir="uid-older")
    assert phase_of(run(beside(copy), copy), copy) is Phase.YIELDING


def test_an_activated_copy_stays_whatever_the_api_says() -> None:
    orders = {"kube-system.ds.api": Override(verb=Verb.ACTIVATE, until="", reason="")}
    ready = beside(SERVING, build.pod(), overrides=orders)
    assert phase_of(run(ready, SERVING), SERVING) is Phase.SERVING
    gone = beside(SERVING, build.pod("other", marked=False, controller=None), overrides=orders)
    confirmed = replace(gone, confirmed_uids=seen(frozenset()))
    assert not any(isinstance(a, RemoveManifest) for a in run(confirmed, SERVING).actions)


def test_a_deactivated_copy_is_stopped() -> None:
    orders = {"kube-system.ds.api": Override(verb=Verb.DEACTIVATE, until="", reason="")}
    assert phase_of(run(beside(overrides=orders), SERVING), SERVING) is Phase.STOPPING


def test_c11_decisions_never_need_the_mirror_pod() -> None:
    # The API lists neither parent nor mirror; the DaemonSet was not yet read: the copy serves on.
    world = beside(SERVING, build.pod("other", marked=False, controller=None))
    assert phase_of(run(world, SERVING), SERVING) is Phase.SERVING


# ---- while it steps aside ----------
YIELDING = build.checkpoint(
    phase=Phase.YIELDING, stopped_at=at(900), ended_at=at(901), stop_seconds=0.2
)
ENDED = build.runtime(sandboxes=[build.sandbox(UID)])


def yielding(**fields: Any) -> Checkpoint:
    return replace(YIELDING, **fields)


def after_copy(**fields: Any) -> Observation:
    """Return a node on which the copy has ended and the parent's sandbox is READY."""
    return beside(SERVING, **{"runtime": ENDED, "manifests": {}, **fields})


def test_the_hand_back_is_done_when_the_other_is_ready_and_the_copy_gone() -> None:
    world = replace(
        after_copy(runtime=build.runtime(UID)),
        api_pods=seen((build.pod(),)),
        ready_since={UID: at(990)},
    )
    decision = run(world, YIELDING)
    assert phase_of(decision, YIELDING) is Phase.STORED
    assert RemoveActive in effects(decision)


def test_a8_a_moment_of_ready_does_not_end_the_hand_back() -> None:
    world = replace(
        after_copy(runtime=build.runtime(UID)),
        api_pods=seen((build.pod(),)),
        ready_since={UID: at(990.1)},
    )
    assert phase_of(run(world, YIELDING), YIELDING) is Phase.YIELDING


def test_the_copys_files_stay_while_its_sandbox_is_ready() -> None:
    world = after_copy(runtime=build.runtime(UID, sandboxes=[build.sandbox(COPY_UID)]))
    ready = replace(world, api_pods=seen((build.pod(),)))
    assert phase_of(run(ready, YIELDING), YIELDING) is Phase.YIELDING


@pytest.mark.parametrize(("stopped", "returns"), [(880.1, False), (879.9, True)])
def test_b3_the_copy_returns_when_the_other_does_not_run_after_120_s(
    stopped: float,
    returns: bool,
) -> None:
    before = yielding(stopped_at=at(stopped))
    decision = run(after_copy(), before)
    assert bool(build.started(decision)) is returns


def test_b3_the_copy_returns_when_the_other_exited_3_times() -> None:
    for attempts, returns in ((1, False), (2, True)):
        crashed = build.runtime(
            sandboxes=[build.sandbox(UID)],
            containers=[build.container(UID, ContainerState.EXITED, attempt=attempts)],
        )
        decision = run(after_copy(runtime=crashed), YIELDING)
        assert bool(build.started(decision)) is returns


def test_exits_beside_the_copy_do_not_count_against_the_other() -> None:
    crashed = build.runtime(
        sandboxes=[build.sandbox(UID)],
        containers=[build.container(UID, ContainerState.EXITED, attempt=5)],
    )
    assert not build.started(run(after_copy(runtime=crashed), yielding(attempts_at_stop=5)))


def test_the_copy_does_not_return_while_the_other_runs() -> None:
    late = yielding(stopped_at=at(800))
    decision = run(after_copy(runtime=build.runtime(UID)), late)
    assert phase_of(decision, late) is Phase.STORED


def test_the_return_is_remembered_so_that_the_same_pod_is_not_tried_again() -> None:
    after = build.saved(run(after_copy(), yielding(stopped_at=at(800))))
    assert after is not None
    assert after.failed_heir == UID
    assert after.phase is Phase.OFFERED


def test_b3_the_copy_returns_when_the_api_is_lost_during_the_hand_back() -> None:
    lost = replace(
        after_copy(), api_contact=build.contact(reached=False, since=910), api_pods=unknown()
    )
    assert build.started(run(lost, yielding(stopped_at=at(800))))
    assert not build.started(run(lost, YIELDING))


def test_b2_a_successor_deleted_during_the_hand_back_leaves_a_tombstone_that_3b_starts() -> None:
    gone = replace(after_copy(), api_pods=seen(()))
    before = yielding(serves_api=True)
    after = build.saved(run(gone, before))
    assert after is not None
    assert after.phase is Phase.TOMBSTONE
    refused = replace(gone, api_contact=build.contact(refusals=1, refused_at=at(999)))
    assert build.started(run(refused, after))


def test_the_runtime_lost_during_the_hand_back_starts_nothing() -> None:
    late = yielding(stopped_at=at(800))
    assert not build.started(run(after_copy(runtime=unknown()), late))


def test_an_unmarked_pod_is_not_covered_again_after_its_hand_back() -> None:
    unmarked = replace(after_copy(), api_pods=seen((replace(PARENT, marked=False),)))
    late = yielding(stopped_at=at(800))
    assert phase_of(run(unmarked, late), late) is Phase.TOMBSTONE


@pytest.mark.parametrize(
    "world",
    [
        {"world": build.world(anchor_uid="other", node_uid="other")},
        {"world": build.world(node_found=False)},
        {"api_pods": unknown("429")},
    ],
    ids=str,
)
def test_no_copy_returns_by_the_word_of_a_server_that_is_not_trusted(
    world: dict[str, Any],
) -> None:
    assert not build.started(run(after_copy(**world), yielding(stopped_at=at(800))))


def test_a_reboot_during_the_hand_back_leads_back_to_rule_3() -> None:
    before = yielding(stopped_at=at(900, "boot-0"), ended_at=None, serves_api=True)
    booted = build.observation(
        api=unknown(since=990),
        runtime=unknown(),
        machine=build.machine(None, runtime=False),
        kubelet_list=unknown(),
        kubelet_in_boot=False,
        available={},
    )
    offered_before = replace(
        before, ran_in_boot="boot-0", activation=build.activation(offered=at(500, "boot-0"))
    )
    after = build.saved(run(booted, offered_before))
    assert after is not None
    assert after.phase is Phase.STORED
    assert build.started(run(booted, after))
