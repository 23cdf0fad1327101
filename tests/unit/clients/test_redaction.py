"""What foreign programs write on their way down, with and without secrets in it."""

from __future__ import annotations

import pytest

from checkpointd.clients import redaction

JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJlMDE"


@pytest.mark.parametrize(
    "text",
    [
        "could not connect to sts.eu-central-1.amazonaws.com:443: timeout",
        "/usr/local/lib/python3.11/site-packages/awscli/clidriver.py: no such file",
        "profile node-7 has no role arn:aws:iam::123456789012:role/eks-node",
        "the token has expired, log in again",
        "dial tcp 10.0.0.1:443: connect: connection refused",
    ],
)
def test_what_a_reader_needs_stays(text: str) -> None:
    assert redaction.one_line(text.encode()) == text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"refused {JWT} by x", "refused […] by x"),
        ("k8s-aws-v1.aHR0cHM6Ly9zdHMuZXU is wrong", "[…] is wrong"),
        ("password=hunter22", "password=[…]"),
        ('{"client_secret": "a1-b2-c3"}', '{"client_secret": "[…]"}'),
        ("Authorization: Bearer abcdef-1", "Authorization: Bearer […]"),
        (
            "AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            "AWS_SECRET_ACCESS_KEY=[…]",
        ),
        ("key 0123456789abcdef0123456789abcdef end", "key […] end"),
        ("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "[…]"),
        ("a -----BEGIN EC PRIVATE KEY-----\nAB\n-----END EC PRIVATE KEY----- b", "a […] b"),
        ("a -----BEGIN PRIVATE KEY-----\nAB", "a […]"),
    ],
)
def test_what_looks_like_a_secret_goes(text: str, said: str) -> None:
    assert redaction.one_line(text.encode()) == said


def test_secrets_that_are_known_go_wherever_they_stand() -> None:
    assert redaction.one_line(b"(myword1, word)", ["myword1", "word", ""]) == "([…], word)"


def test_it_is_one_short_line_that_steers_no_terminal() -> None:
    said = redaction.one_line(b"\x1b[31mred\x00\nnext\xff" + b" a" * 1000)
    assert said.startswith("[31mred next\ufffd a")
    assert said.isprintable()
    assert len(said) <= redaction.LONGEST + 1
