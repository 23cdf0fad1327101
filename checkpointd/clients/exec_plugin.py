"""Get credentials from an exec plugin (client.authentication.k8s.io), as client-go does.

The reference is client-go's plugin/pkg/client/auth/exec/exec.go. Otherwise than there the plugin
has a time limit, no environment of ours, and no terminal; one that fails is not run again at once,
and what it gave before is used as long as it gives nothing new. No argument, variable or answer of
it ever becomes part of an error.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime

from checkpointd import json_fields
from checkpointd.clients import bounded_process, key_files, redaction, yaml_text
from checkpointd.clients.bounded_process import Bounds, Ended
from checkpointd.clients.key_files import Part
from checkpointd.clock import Clock
from checkpointd.errors import FieldError, SourceError
from checkpointd.json_fields import Json

TIMEOUT = 10.0
"""Seconds for one run: as long as an API server may take for its answer."""
LARGEST_ANSWER = key_files.LARGEST_FILE
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0
"""Seconds after a failed run before the next: doubling."""
SHORTEST_LIFE = 30.0
"""Seconds for which an answer is used, whatever it says of its end: one of two clocks is wrong."""
REFUSAL_PAUSE = 30.0
LONGEST_REFUSAL_PAUSE = 300.0
"""Seconds between runs because of refusals, doubling: a plugin cannot help what the server says."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""systemd.exec(5): the same for every service, whoever started it."""
INFO = "KUBERNETES_EXEC_INFO"
VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
"""v1alpha1 went with Kubernetes 1.24."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """Hold what a kubeconfig says of its plugin. ``key`` names kubeconfig and user in errors.

    ``cluster`` is what the plugin is told of the cluster, but for the authority's certificates,
    ``ca``, which are read anew; None where it is told nothing.
    """

    key: str
    api_version: str
    command: str
    arguments: tuple[str, ...] = field(default=(), repr=False)
    environment: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    install_hint: str = ""
    cluster: Json | None = field(default=None, repr=False)
    ca: Part | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """Hold what one run of a plugin gave: a token, or PEM of certificate and key, or both."""

    token: str = field(default="", repr=False)
    pair: bytes = field(default=b"", repr=False)
    expires: float | None = None


class Plugin:
    """Run one plugin when its credentials are needed and keep them until they end.

    Any thread may ask; one at a time runs it, the others wait for what it gives.
    """

    def __init__(self, spec: Spec, timeout: float = TIMEOUT) -> None:
        self.spec = spec
        self._timeout = timeout
        self._lock = threading.Lock()
        self._stop = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._login: Login | None = None
        self._got_at = 0.0
        self._failed_at = 0.0
        self._failure = ""
        self._pause = 0.0
        self._refused_at = float("-inf")
        self._refusal_pause = REFUSAL_PAUSE

    def __del__(self) -> None:
        with suppress(OSError):
            os.close(self._stop)

    @property
    def known(self) -> Login | None:
        """Return what the last good run gave, whether it has ended or not."""
        return self._login

    @property
    def failure(self) -> str:
        """Return why the last run gave nothing, "" where it did."""
        return self._failure

    def must_run(self) -> bool:
        """Tell whether ``login`` would run the plugin, if it were asked now."""
        return not self._is_good() and self._seconds_to_next() <= 0

    def login(self) -> Login:
        """Return credentials; run the plugin if there are none or theirs has passed.

        Where the plugin fails, those from before: the server may know them still, and which of two
        clocks is wrong it will say. Raises SourceError where there are none.
        """
        with self._lock:
            if not self._is_good() and self._seconds_to_next() <= 0:
                with suppress(SourceError):
                    self._run()
            if self._login is None:
                raise SourceError(self._failure)
            return self._login

    def renew(self, refused: Login) -> Login | None:
        """Run the plugin again since a server does not know what it gave.

        Return None where that was tried a moment ago. Raises SourceError.
        """
        with self._lock:
            if self._login is not refused:
                return self._login
            since = time.monotonic() - self._refused_at
            if since < self._refusal_pause or self._seconds_to_next() > 0:
                return None
            login = self._run()
            calm = since > 2 * LONGEST_REFUSAL_PAUSE
            longer = REFUSAL_PAUSE if calm else 2 * self._refusal_pause
            self._refusal_pause = min(LONGEST_REFUSAL_PAUSE, longer)
            self._refused_at = time.monotonic()
            return login

    def stop(self) -> None:
        """End the run that is under way, and all later ones."""
        os.eventfd_write(self._stop, 1)

    # ---- one run -------------------------------------------------------------------------------
    def _is_good(self) -> bool:
        if self._login is None:
            return False
        ends = self._login.expires
        is_new = time.monotonic() - self._got_at < SHORTEST_LIFE
        return ends is None or Clock.wall().timestamp() < ends or is_new

    def _seconds_to_next(self) -> float:
        if not self._failure:
            return 0.0
        return self._failed_at + self._pause - time.monotonic()

    def _run(self) -> Login:
        """Run the plugin and keep its answer. Raises SourceError."""
        try:
            login = parse_answer(self.spec, self._execute())
        except SourceError as error:
            self._failure = f"{self.spec.key}: {self.spec.command}: {error}"
            self._pause = min(LONGEST_PAUSE, 2 * self._pause or FIRST_PAUSE)
            self._failed_at = time.monotonic()
            raise SourceError(self._failure) from error
        self._login, self._failure, self._pause = login, "", 0.0
        self._got_at = time.monotonic()
        return login

    def _execute(self) -> bytes:
        spec = self.spec
        command = [_find(spec), *spec.arguments]
        bounds = Bounds(seconds=self._timeout, output=LARGEST_ANSWER, stop=self._stop)
        try:
            ended = bounded_process.run(command, make_environment(spec), bounds)
        except OSError as error:
            raise SourceError(f"cannot be started: {error.strerror}") from error
        except ValueError as error:
            raise SourceError("cannot be started: a NUL in its arguments or variables") from error
        if ended.code != 0:
            raise SourceError(_say_end(spec, ended))
        return ended.output


def make_environment(spec: Spec) -> dict[str, str]:
    """Return the environment of the plugin: nothing of ours but the home directory.

    Raises SourceError where the cluster's certificates cannot be read.
    """
    environment = {"PATH": PATH, "HOME": os.environ.get("HOME", "/root"), "LANG": "C.UTF-8"}
    environment.update(spec.environment)
    asked: dict[str, object] = {"interactive": False}
    if spec.cluster is not None:
        asked["cluster"] = dict(spec.cluster)
        if spec.ca is not None:
            asked["cluster"] = {**spec.cluster, "certificate-authority-data": _base64(spec.ca)}
    info = {"kind": "ExecCredential", "apiVersion": spec.api_version, "spec": asked}
    # YAML knows dates, JSON none.
    environment[INFO] = json.dumps(info, default=str)
    return environment


def parse_answer(spec: Spec, output: bytes) -> Login:
    """Return what a plugin wrote. Raises SourceError, which holds nothing of it."""
    try:
        answer = _load(output)
        _check_type(answer, spec)
        return _parse_status(json_fields.mapping(answer, "status"))
    except FieldError as error:
        raise SourceError(f"its answer is none: {error}") from None


def _check_type(answer: Json, spec: Spec) -> None:
    if json_fields.optional_text(answer, "kind") != "ExecCredential":
        raise FieldError('kind: expected "ExecCredential"')
    if json_fields.optional_text(answer, "apiVersion") != spec.api_version:
        raise FieldError(f"apiVersion: expected {spec.api_version}, as the kubeconfig has it")


def _load(output: bytes) -> Json:
    if output.lstrip()[:1] == b"{":
        try:
            return json_fields.parse_object(output, "the answer")
        except FieldError:
            raise FieldError("not JSON") from None
    return json_fields.as_object(yaml_text.parse_first(output, "the answer"), "the answer")


def _parse_status(status: Json) -> Login:
    token = json_fields.optional_text(status, "token")
    certificate = json_fields.optional_text(status, "clientCertificateData")
    key = json_fields.optional_text(status, "clientKeyData")
    if bool(certificate) != bool(key):
        raise FieldError("status: a certificate or a key alone")
    if not token and not certificate:
        raise FieldError("status: neither a token nor a certificate with its key")
    if token:
        token = key_files.check_token(token.encode(), "status.token")
    return Login(
        token=token,
        pair=f"{certificate}\n{key}\n".encode() if certificate else b"",
        expires=_parse_time(json_fields.optional_text(status, "expirationTimestamp")),
    )


def _parse_time(text: str) -> float | None:
    if not text:
        return None
    try:
        # Python 3.10 knows neither "Z" nor nanoseconds.
        moment = datetime.fromisoformat(re.sub(r"\.\d+", "", text).replace("Z", "+00:00"))
    except ValueError:
        raise FieldError("status.expirationTimestamp: expected RFC 3339 in UTC") from None
    if moment.tzinfo is None:
        raise FieldError("status.expirationTimestamp: without a time zone")
    return moment.timestamp()


def _find(spec: Spec) -> str:
    """Return the program's path; a bare name is looked for as in a shell. Raises SourceError."""
    if "/" in spec.command:
        return spec.command
    for directory in PATH.split(":"):
        path = f"{directory}/{spec.command}"
        if os.access(path, os.X_OK):
            return path
    hint = redaction.one_line(spec.install_hint.encode())
    raise SourceError(f"not found in {PATH}" + (f": {hint}" if hint else ""))


def _say_end(spec: Spec, ended: Ended) -> str:
    """Say how it failed; of its own words what holds no secret."""
    values = [value for _, value in spec.environment]
    words = redaction.one_line(ended.errors, [*values, *spec.arguments])
    end = f"exit code {ended.code}" if ended.code > 0 else f"killed by signal {-ended.code}"
    return f"{end}: {words}" if words else f"{end}, and no word on standard error"


def _base64(ca: Part) -> str:
    import base64

    return base64.b64encode(ca.read()).decode("ascii")
