"""Look at the credentials: does the kubeconfig parse, who are we by it, and until when."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

from checkpointd.cli.examine.finding import Finding, fault, good, note, unknown, warning
from checkpointd.cli.examine.scene import Scene
from checkpointd.clients import certificates
from checkpointd.clients.certificates import Certificate
from checkpointd.clients.credentials import Credentials, Secrets
from checkpointd.clients.tls_words import NODE_USER
from checkpointd.clock import Clock
from checkpointd.errors import FieldError, SourceError

SOON = timedelta(days=14)
"""A kubelet renews its own at 70-90 % of a year: weeks earlier."""
_LOST = "the API server is unknown: copies start as if none answered"


def examine_credentials(scene: Scene) -> Iterator[Finding]:
    """Say who we are to the API server, and whom we take for it."""
    place = scene.place("kubeconfig")
    try:
        credentials = scene.credentials()
    except SourceError as error:
        remedy = "give the node its kubeconfig again, or set [kubelet] kubeconfig"
        yield fault("kubeconfig", str(error).removeprefix("kubeconfig: "), _LOST, remedy)
        return
    yield good("kubeconfig", f"{place}: API server {credentials.server}")
    yield from _mode(Path(place.value))
    for text in credentials.warnings:
        yield warning("kubeconfig", text, "secrets may be told to a stranger", "give it a CA")
    try:
        secrets = credentials.read()
    except SourceError as error:
        yield fault("credentials", str(error), _LOST, "renew the node's credentials")
        return
    now = Clock.wall()
    yield from _user(scene, credentials, secrets, now)
    if secrets.ca:
        yield from _authority(secrets.ca, now)


def _mode(path: Path) -> Iterator[Finding]:
    status = path.stat()
    if status.st_mode & (stat.S_IROTH | stat.S_IWOTH | stat.S_IWGRP):
        yield warning(
            "kubeconfig",
            f"{path} is open to others ({stat.filemode(status.st_mode)})",
            "who reads it may be this node to the API server",
            f"chmod 0600 {path}",
        )


def _user(
    scene: Scene, credentials: Credentials, secrets: Secrets, now: datetime
) -> Iterator[Finding]:
    if secrets.pair:
        try:
            certificate = certificates.parse_first(secrets.pair)
        except FieldError as error:
            yield unknown("credentials", f"the client's certificate: {error}")
            return
        yield from client(certificate, scene.node_name.value, now)
    elif secrets.token:
        where = "a plugin" if credentials.plugin is not None else "a token"
        yield note("credentials", f"{where} says who we are: see the API server below")
    else:
        remedy = "give the kubeconfig a client certificate or a token"
        yield fault("credentials", "neither certificate nor token", _LOST, remedy)


def client(certificate: Certificate, node: str, now: datetime) -> Iterator[Finding]:
    """Judge the certificate by which the API server knows us; ``node`` is "" if unknown."""
    subject = "client certificate"
    words = str(certificate)
    renew = "renew it (kubeadm: systemctl restart kubelet, or kubeadm certs renew)"
    if now > certificate.not_after:
        yield fault(subject, f"expired: {words}", _LOST, renew)
    elif now < certificate.not_before:
        yield fault(subject, f"not valid yet: {words}", _LOST, "set this node's clock")
    elif certificate.not_after - now < SOON:
        yield warning(subject, f"expires soon: {words}", f"then {_LOST}", renew)
    else:
        yield good(subject, words)
    user = certificate.user
    if node and user.startswith(NODE_USER) and user != f"{NODE_USER}{node}":
        yield fault(
            subject,
            f"it speaks for {user.removeprefix(NODE_USER)}, but this node is {node}",
            "the API server does not let it read this node or its pods",
            "give the node its own kubeconfig, or correct [node] name",
        )


def _authority(ca: bytes, now: datetime) -> Iterator[Finding]:
    try:
        certificate = certificates.parse_first(ca)
    except FieldError as error:
        yield fault("authority", f"certificate-authority: {error}", _LOST, "renew it")
        return
    if now > certificate.not_after:
        yield fault("authority", f"expired: {certificate}", _LOST, "renew it")
    elif certificate.not_after - now < SOON:
        yield warning("authority", f"expires soon: {certificate}", f"then {_LOST}", "renew it")
    else:
        yield good("authority", str(certificate))
