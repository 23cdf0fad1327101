"""What is told of contact: how often, whose socket, and when to ask again."""

from __future__ import annotations

import pytest

from checkpointd.clients.credentials import Credentials
from checkpointd.clients.kube_connection import Peer
from checkpointd.errors import RefusedError, RejectedError, SilentError, SourceError
from checkpointd.model.moments import Instant
from checkpointd.model.observation import ApiAnswered, ApiRefused, ApiSilent
from checkpointd.model.selection import Selection
from checkpointd.observe.api.access import ApiAccess
from checkpointd.observe.api.contact import Contact, Patience
from tests.fakes.posted import Posted

PEER = Peer("10.0.0.1", 6443)


class Host:
    """Be a host with one address whose sockets are one pod's."""

    def __init__(self, address: str = "10.0.0.1") -> None:
        self.address = address
        self.looks = 0

    def contact(self, posted: Posted) -> Contact:
        return Contact(
            posted.post,
            ApiAccess(
                credentials=self.no_credentials,
                find_node_name=lambda: "",
                selection=Selection,
                find_listeners=self.find_listeners,
                own_addresses=lambda: frozenset({self.address}),
            ),
            Patience(),
        )

    def find_listeners(self, _port: int) -> frozenset[str] | None:
        self.looks += 1
        return frozenset({"uid"})

    @staticmethod
    def no_credentials() -> Credentials:
        raise SourceError("not asked for here")


def at(seconds: float) -> Instant:
    return Instant(boot_id="b", seconds=seconds)


def test_answers_are_posted_once_a_second_and_at_once_after_a_failure() -> None:
    posted = Posted()
    contact = Host().contact(posted)
    for seconds in (0.0, 0.5, 0.9, 1.0, 1.1):
        contact.answered(at(seconds), PEER)
    assert [fact.at.seconds for fact in posted.of(ApiAnswered)] == [0.0, 1.0]
    contact.failed(SilentError("x"), at(1.2), PEER)
    contact.answered(at(1.3), PEER)
    assert posted.of(ApiAnswered)[-1].at == at(1.3)


def test_a2_the_sockets_owner_is_looked_for_where_the_address_is_our_own() -> None:
    posted, host = Posted(), Host()
    contact = host.contact(posted)
    contact.answered(at(0), PEER)
    first = posted.wait_for(ApiAnswered)
    assert (first.address, first.local) == ("10.0.0.1:6443", True)
    assert first.listening_pods == frozenset({"uid"})
    contact.answered(at(5), PEER)
    assert posted.wait_for(ApiAnswered).listening_pods is None
    contact.answered(at(10), PEER)
    assert posted.wait_for(ApiAnswered).listening_pods == frozenset({"uid"})
    contact.failed(RefusedError("x"), at(11), PEER)
    contact.answered(at(12), PEER)
    assert posted.wait_for(ApiAnswered).listening_pods == frozenset({"uid"})
    assert host.looks == 3


def test_a2_another_hosts_address_says_nothing_of_our_pods() -> None:
    posted, host = Posted(), Host("10.0.0.2")
    host.contact(posted).answered(at(0), PEER)
    answer = posted.wait_for(ApiAnswered)
    assert (answer.local, answer.listening_pods, host.looks) == (False, None, 0)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.53", "::1"])
def test_loopback_is_our_own(address: str) -> None:
    posted = Posted()
    Host().contact(posted).answered(at(0), Peer(address, 6443))
    assert posted.wait_for(ApiAnswered).local


def test_each_failure_has_its_fact() -> None:
    posted = Posted()
    contact = Host().contact(posted)
    contact.failed(RefusedError("a"), at(1), None)
    contact.failed(SilentError("b"), at(2), None)
    contact.failed(RejectedError("c", 403), at(3), PEER)
    contact.failed(SourceError("d"), at(4), None)
    assert posted.facts == [
        ApiRefused(at(1), "a"),
        ApiSilent(at(2), "b"),
        ApiSilent(at(3), "c"),
        ApiSilent(at(4), "d"),
    ]


def test_too_many_requests_is_contact() -> None:
    posted = Posted()
    Host().contact(posted).failed(RejectedError("busy", 429), at(1), PEER)
    assert posted.wait_for(ApiAnswered).at == at(1)


def test_probes_are_a_second_apart_for_a_minute_then_about_five() -> None:
    contact = Host().contact(Posted())
    contact.failed(SilentError("x"), at(0), None)
    assert contact.seconds_to_probe(at(0), at(0)) == 1.0
    assert contact.seconds_to_probe(at(50), at(50.25)) == 0.75
    assert contact.seconds_to_probe(at(40), at(55)) == 0.1
    assert 4.0 <= contact.seconds_to_probe(at(61), at(61)) <= 6.0


def test_an_answer_counts_once_another_came_long_enough_after_it() -> None:
    contact = Host().contact(Posted())
    assert contact.seconds_to_confirm(at(0)) == 10.0
    contact.answered(at(0), PEER)
    assert contact.seconds_to_confirm(at(3)) == 7.0
    contact.answered(at(9), PEER)
    assert contact.seconds_to_confirm(at(9)) == 1.0
    contact.answered(at(10), PEER)
    assert contact.seconds_to_confirm(at(10)) is None
    contact.failed(SilentError("x"), at(11), PEER)
    assert contact.seconds_to_confirm(at(11)) == 10.0


def test_a_server_that_asks_to_be_left_alone_is_but_not_for_long() -> None:
    contact = Host().contact(Posted())
    contact.failed(RejectedError("busy", 429, retry_after=4.0), at(0), PEER)
    assert contact.seconds_to_probe(at(0), at(0)) == 4.0
    contact.failed(RejectedError("busy", 503, retry_after=3600.0), at(4), PEER)
    assert contact.seconds_to_probe(at(4), at(4)) == 10.0
    contact.failed(RefusedError("gone"), at(14), PEER)
    assert contact.seconds_to_probe(at(14), at(14)) == 1.0


def test_a_server_that_answers_but_opens_no_watch_is_asked_less_often_after_a_minute() -> None:
    contact = Host().contact(Posted())
    for second in range(70):
        contact.answered(at(second), PEER)
        contact.failed(RejectedError("no list", 500), at(second), PEER)
        seconds = contact.seconds_to_probe(at(second), at(second))
        assert seconds == 1.0 if second < 60 else seconds >= 4.0
    contact.answered(at(70), PEER)
    contact.watching()
    contact.failed(RejectedError("no list", 500), at(71), PEER)
    assert contact.seconds_to_probe(at(71), at(71)) == 1.0
