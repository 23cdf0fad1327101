"""Ask the kubelet over HTTP: whether it lives, which pods it has, what its cache says is running.

Nothing is ever concluded from a failure: every one is an error (field report A4). Only names and
UIDs are kept of an answer.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import ssl
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from checkpointd import json_fields
from checkpointd.clients import bounded_http, item_stream, kube_connection, tls_words
from checkpointd.clients.credentials import Credentials, Secrets
from checkpointd.clients.key_files import Part, read_file
from checkpointd.clients.tls_words import Remedies
from checkpointd.errors import FieldError, RejectedError, SourceError
from checkpointd.json_fields import Json
from checkpointd.model.observation import KubeletProcess, PodName
from checkpointd.model.permissions import GET_KUBELET_PODS
from checkpointd.settings import KubeletSettings

TIMEOUT = 5.0
"""Seconds for a whole request: /pods of 110 pods takes 40 ms."""
LARGEST_ANSWER = 128 * 1024 * 1024
"""Bytes of an answer; they are streamed, so this bounds time, not memory."""

_LOOPBACK = "127.0.0.1"
_HEALTHZ = "/healthz"
_ANONYMOUS = Credentials(host="", port=0, prefix="", verify_name="", insecure=False)
_PERMISSION = (
    f'needs the permission "{GET_KUBELET_PODS.verb}" on "nodes/{GET_KUBELET_PODS.subresource}" '
    f"(core API group), nothing wider: {GET_KUBELET_PODS.remedy}; without it "
    f"{GET_KUBELET_PODS.costs}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """Say where the kubelet listens; a port of 0 means that it does not.

    ``address`` is what it binds ("" and the unspecified addresses: loopback answers).
    """

    address: str = ""
    port: int = 10250
    read_only_port: int = 0
    healthz_port: int = 10248
    root_dir: str = "/var/lib/kubelet"

    @property
    def host(self) -> str:
        """Return the address to connect to: never a name, so that no hosts file matters (A6)."""
        if not self.address:
            return _LOOPBACK
        try:
            parsed = ipaddress.ip_address(self.address)
        except ValueError:
            return self.address
        if not parsed.is_unspecified:
            return self.address
        return _LOOPBACK if parsed.version == 4 else "::1"


@dataclass(frozen=True, slots=True)
class _Request:
    """Say what to ask with which headers, and which credentials are shown with it."""

    target: bounded_http.Target
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    shown: tuple[Credentials, Secrets] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """Say which serving certificate to believe.

    ``certificates`` are the kubelet's own (pinned: any name will do, since it is the node's), else
    the CA of the credentials or ``ca_file`` must have signed it and it must carry ``server_name``.
    """

    certificates: tuple[Path, ...] = ()
    ca_file: str = ""
    server_name: str = ""


def find_certificates(root_dir: str) -> tuple[Path, ...]:
    """Return the kubelet's serving certificates that are there.

    Self-signed (cmd/kubelet/app/server.go: InitializeTLS) or signed by the cluster when
    ``serverTLSBootstrap`` is set (pkg/kubelet/certificate/kubelet.go: pair name "kubelet-server").
    """
    directory = Path(root_dir) / "pki"
    files = (directory / "kubelet-server-current.pem", directory / "kubelet.crt")
    return tuple(file for file in files if file.is_file())


def endpoints_of(process: KubeletProcess, settings: KubeletSettings) -> Endpoints:
    """Return where a running kubelet listens; what the settings say wins."""
    return Endpoints(
        address=settings.address or process.address,
        port=settings.port or process.port,
        read_only_port=settings.read_only_port or process.read_only_port,
        healthz_port=settings.healthz_port or process.healthz_port,
        root_dir=settings.root_dir or process.root_dir,
    )


def choose_trust(settings: KubeletSettings, root_dir: str, node_name: str) -> Trust:
    """Return what to verify the kubelet by: the settings' file, its own files, else the CA."""
    certificates = find_certificates(root_dir)
    if settings.server_certificate:
        certificates = (Path(settings.server_certificate),)
    elif settings.ca_file:
        certificates = ()
    name = settings.node_name or node_name
    return Trust(certificates=certificates, ca_file=settings.ca_file, server_name=name)


def choose_credentials(
    settings: KubeletSettings, find: Callable[[], Credentials | None]
) -> Callable[[], Credentials | None]:
    """Return what finds the credentials for the kubelet: the settings' pair, else ``find``'s."""
    if not settings.client_certificate:
        return find
    key = settings.client_key or settings.client_certificate
    certificate = Part(key="kubelet.client_certificate", path=Path(settings.client_certificate))

    def replaced() -> Credentials:
        return dataclasses.replace(
            find() or _ANONYMOUS,
            client_certificate=certificate,
            client_key=Part(key="kubelet.client_key", path=Path(key)),
            token=None,
            plugin=None,
        )

    return replaced


class KubeletClient:
    """Ask one kubelet. Each request has its own connection and one deadline for all of it.

    ``find_credentials`` returns who we are at that moment (a client certificate or token, and the
    cluster's CA), or None where nothing is known; it may raise SourceError. All methods raise
    RefusedError, SilentError, RejectedError, SourceError.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        trust: Trust,
        find_credentials: Callable[[], Credentials | None],
        *,
        timeout: float = TIMEOUT,
        largest_answer: int = LARGEST_ANSWER,
    ) -> None:
        self.endpoints = endpoints
        self._trust = trust
        self._find_credentials = find_credentials
        self._timeout = timeout
        self._largest = largest_answer

    def check_healthz(self) -> None:
        """Return if the kubelet says "ok" on its health port, which asks for no credentials."""
        # The health server binds its own address, by default the loopback one.
        target = bounded_http.Target(
            host=_LOOPBACK, port=self.endpoints.healthz_port, path=_HEALTHZ
        )
        with self._get(_Request(target)) as answer:
            if b"".join(answer.chunks()).strip() != b"ok":
                raise RejectedError(f'{target}: the answer is not "ok"')

    def list_pods(self) -> frozenset[PodName]:
        """List (namespace, name) of the pods that the kubelet has, from 10250."""
        return self._names(self._secure("/pods"))

    def list_pods_read_only(self) -> frozenset[PodName]:
        """List the same from the read-only port, which asks for no credentials."""
        return self._names(_Request(self._plain(self.endpoints.read_only_port, "/pods")))

    def list_running(self) -> frozenset[str]:
        """List the UIDs of /runningpods/ that have a container; a sandbox alone is no pod.

        The read-only port never serves it (kubelet facts K-16).
        """
        request = self._secure("/runningpods/")
        with self._get(request) as answer:
            found = [_running_uid(item) for item in _items(answer, request.target)]
        return frozenset(uid for uid in found if uid)

    def _names(self, request: _Request) -> frozenset[PodName]:
        with self._get(request) as answer:
            return frozenset(_name(item) for item in _items(answer, request.target))

    @contextmanager
    def _get(self, request: _Request) -> Generator[bounded_http.Answer]:
        target, headers = request.target, request.headers
        with bounded_http.get(target, headers, timeout=self._timeout, most=self._largest) as answer:
            if answer.status != 200:
                why = _hint(answer.status, target.path)
                if answer.status == 401 and request.shown is not None:
                    why = f"{why}; {tls_words.explain_refusal(*request.shown)}"
                raise RejectedError(f"{target}: HTTP {answer.status}{why}", answer.status)
            yield answer

    def _plain(self, port: int, path: str) -> bounded_http.Target:
        if not port:
            raise RejectedError(f"the kubelet has no port for {path} without TLS")
        return bounded_http.Target(host=self.endpoints.host, port=port, path=path)

    def _secure(self, path: str) -> _Request:
        if not self.endpoints.port:
            raise RejectedError(f"the kubelet has no port for {path}")
        credentials = self._trusting(self._find_credentials() or _ANONYMOUS)
        secrets = credentials.read()
        name = self._trust.server_name or self.endpoints.host
        target = bounded_http.Target(
            host=self.endpoints.host,
            port=self.endpoints.port,
            path=path,
            context=self._context(credentials, secrets),
            server_name=name,
            remedies=_remedies(self._trust, credentials, name),
        )
        return _Request(
            target=target,
            headers={"Authorization": f"Bearer {secrets.token}"} if secrets.token else {},
            shown=(credentials, secrets),
        )

    def _trusting(self, credentials: Credentials) -> Credentials:
        """Trust what ``Trust`` says and nothing else. Raises RejectedError for nothing."""
        ca = credentials.ca
        if self._trust.ca_file:
            ca = Part(key="kubelet.ca_file", path=Path(self._trust.ca_file))
        if self._trust.certificates:
            ca = None
        elif ca is None:
            raise RejectedError("there is nothing to verify the kubelet's certificate against")
        # What a kubeconfig says of not verifying is said of the API server.
        return dataclasses.replace(credentials, ca=ca, insecure=False)

    def _context(self, credentials: Credentials, secrets: Secrets) -> ssl.SSLContext:
        """Make the TLS context. Files are read anew each time: they rotate."""
        context = kube_connection.make_context(credentials, secrets)
        if self._trust.certificates:
            context.check_hostname = False
            # The very certificate is enough, be it self-signed or signed by whomsoever.
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            for path in self._trust.certificates:
                _pin(context, path)
        return context


def _remedies(trust: Trust, credentials: Credentials, name: str) -> Remedies:
    files = " or ".join(str(file) for file in trust.certificates)
    ca = credentials.ca.key if credentials.ca is not None else f"{files} (or [kubelet] ca-file)"
    return Remedies(ca=ca, name="[node] name", expected=name)


def _pin(context: ssl.SSLContext, path: Path) -> None:
    """Trust the first certificate of a file, the kubelet's own; what follows has signed it."""
    content = read_file(path, "kubelet's certificate").decode("latin-1")
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    start, stop = content.find(begin), content.find(end)
    try:
        context.load_verify_locations(cadata=content[max(0, start) : stop + len(end)])
    except (ssl.SSLError, ValueError) as error:
        raise SourceError(f"{path}: no certificate in PEM") from error


def _items(answer: bounded_http.Answer, target: bounded_http.Target) -> Iterator[Json]:
    # Items have no TypeMeta (kubelet facts K-16), and the list's own is not relied on.
    return item_stream.read_items(answer.chunks(), str(target))


def _name(item: Json) -> PodName:
    """Return (namespace, name) of a pod; static pods carry the node's name as a suffix."""
    try:
        return (
            json_fields.text(item, "metadata", "namespace"),
            json_fields.text(item, "metadata", "name"),
        )
    except FieldError as error:
        raise RejectedError(f"the kubelet lists a pod that is none: {error}") from error


def _running_uid(item: Json) -> str:
    try:
        uid = json_fields.text(item, "metadata", "uid")
        return uid if json_fields.objects(item, "spec", "containers") else ""
    except FieldError as error:
        raise RejectedError(f"the kubelet lists a pod that is none: {error}") from error


def _hint(status: int, path: str) -> str:
    """Say what a status means here (pkg/kubelet/server/auth.go, kubelet facts K-16).

    Of its health the kubelet tells anybody (k8s.io/apiserver/pkg/server/healthz).
    """
    if path == _HEALTHZ:
        ill = ": the kubelet says that it is not well (journalctl -u kubelet)"
        return ill if status == 500 else ": this is not the kubelet's server"
    hints = {
        401: f": the kubelet does not know this client; it {_PERMISSION}",
        403: f": this client {_PERMISSION}",
        404: ": this is not the kubelet's server",
        405: ": not served there (enableDebuggingHandlers is off, or this is the read-only port)",
        500: ": the kubelet cannot ask the API server whether this client may",
    }
    return hints.get(status, "")
