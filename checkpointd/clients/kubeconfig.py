"""Read a kubeconfig: where the API server is, whom to trust, and who we are.

Everything that is wrong is a SourceError that names file, key and remedy, never a value. Its
precedences are client-go's (tools/clientcmd, rest, transport); what a daemon has no use for, or
what would let it act as somebody else, is refused.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from checkpointd import json_fields
from checkpointd.clients import http_proxy, key_files, yaml_text
from checkpointd.clients.credentials import Credentials
from checkpointd.clients.key_files import Part, Stamp
from checkpointd.clients.kubeconfig_section import Section
from checkpointd.errors import FieldError, SourceError
from checkpointd.json_fields import Json

_INSTEAD = "use a client certificate, a tokenFile or an exec plugin"
_REFUSED_USER = {
    "auth-provider": f"not supported (client-go has none any more): {_INSTEAD}",
    "username": f"not supported (API servers have not taken passwords since 1.19): {_INSTEAD}",
    "password": f"not supported (API servers have not taken passwords since 1.19): {_INSTEAD}",
    **dict.fromkeys(
        ("as", "as-uid", "as-groups", "as-user-extra"),
        "not supported: checkpointd acts as itself alone; name the user that it is to be",
    ),
}

if TYPE_CHECKING:
    from checkpointd.clients.exec_plugin import Plugin, Spec

    Plugins = Callable[[Spec], Plugin]


class Kubeconfig:
    """Read a kubeconfig anew when its file changes: YAML is slow, and is not parsed twice.

    Safe to use from several threads. A plugin is kept, with what it gave, as long as what the file
    says of it stays the same.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._read: tuple[Stamp, Credentials] | None = None
        self._plugin: Plugin | None = None

    def read(self) -> Credentials:
        """Return the credentials as the file has them now. Raises SourceError."""
        with self._lock:
            stamp = key_files.stamp_of(self.path, "kubeconfig")
            if self._read is None or self._read[0] != stamp:
                self._read = (stamp, read_kubeconfig(self.path, self._keep_plugin))
            return self._read[1]

    def stop(self) -> None:
        """End a plugin that runs."""
        if self._plugin is not None:
            self._plugin.stop()

    def _keep_plugin(self, spec: Spec) -> Plugin:
        from checkpointd.clients.exec_plugin import Plugin

        if self._plugin is None or self._plugin.spec != spec:
            self._plugin = Plugin(spec)
        return self._plugin


def read_kubeconfig(path: Path, plugins: Plugins | None = None) -> Credentials:
    """Read the current context of a kubeconfig in JSON or YAML. Raises SourceError.

    ``plugins`` makes the plugin of an exec section; not given, it is a new one.
    """
    try:
        return _parse(_load(key_files.read_file(path, "kubeconfig")), path, plugins)
    except FieldError as error:
        raise SourceError(f"{path}: {error}") from error


def _load(content: bytes) -> Json:
    if content.lstrip()[:1] == b"{":
        with suppress(FieldError):
            return json_fields.parse_object(content, "kubeconfig")
    return json_fields.as_object(yaml_text.parse_first(content, "kubeconfig"), "kubeconfig")


def _parse(config: Json, path: Path, plugins: Plugins | None) -> Credentials:
    name, context = _find_context(config)
    cluster_name = json_fields.optional_text(context, "cluster")
    if not cluster_name:
        raise FieldError(f"contexts[{name}].context.cluster: missing: name one of clusters")
    user_name = json_fields.optional_text(context, "user")
    if not user_name:
        raise FieldError(f"contexts[{name}].context.user: missing: name one of users")
    cluster = _find_named(config, "clusters", "cluster", cluster_name)
    user = _find_named(config, "users", "user", user_name)
    return _combine(
        Section(path, f"clusters[{cluster_name}].cluster", cluster),
        Section(path, f"users[{user_name}].user", user),
        plugins,
    )


def _find_context(config: Json) -> tuple[str, Json]:
    """Return the current context; the only one where none is named."""
    name = json_fields.optional_text(config, "current-context")
    names = [json_fields.optional_text(e, "name") for e in json_fields.objects(config, "contexts")]
    if not name and len(names) == 1:
        return names[0], json_fields.mapping(json_fields.objects(config, "contexts")[0], "context")
    if not name:
        raise FieldError(f"current-context: missing: {_choose(names, 'contexts')}")
    return name, _find_named(config, "contexts", "context", name)


def _find_named(config: Json, plural: str, singular: str, name: str) -> Json:
    entries = json_fields.objects(config, plural)
    names = [json_fields.optional_text(entry, "name") for entry in entries]
    if names.count(name) > 1:
        raise FieldError(f'{plural}: two entries are named "{name}": leave one')
    if name not in names:
        raise FieldError(f'{plural}: no entry is named "{name}": {_choose(names, plural)}')
    return json_fields.mapping(entries[names.index(name)], singular)


def _choose(names: list[str], plural: str) -> str:
    if not names:
        return f"{plural} is empty"
    return "set it to one of " + ", ".join(f'"{name}"' for name in names[:10])


def _combine(cluster: Section, user: Section, plugins: Plugins | None) -> Credentials:
    user.refuse(_REFUSED_USER)
    address = _server(cluster)
    insecure = cluster.boolean("insecure-skip-tls-verify")
    ca = None if insecure else cluster.part("certificate-authority")
    if ca is None and not insecure:
        where = cluster.where("certificate-authority")
        raise SourceError(
            f"{where}: missing: name the file of the cluster's authority (the system's own "
            "authorities are never trusted)"
        )
    certificate, key = user.part("client-certificate"), user.part("client-key")
    if (certificate is None) != (key is None):
        missing = "client-certificate" if certificate is None else "client-key"
        raise SourceError(f"{user.where(missing)}: missing: the other of the pair is there")
    token, other_token = _tokens(user)
    has_other = certificate is not None or token is not None
    host = address.hostname or ""
    return Credentials(
        host=host,
        port=address.port or 443,
        prefix=address.path.rstrip("/"),
        verify_name=cluster.text("tls-server-name") or host,
        insecure=insecure,
        ca=ca,
        client_certificate=certificate,
        client_key=key,
        token=token,
        other_token=other_token,
        # client-go asks no plugin where there is anything else (exec.go, UpdateTransportConfig).
        plugin=None if has_other else _plugin(cluster, user, ca, plugins),
        proxy=_proxy(cluster),
        cluster_key=f"{cluster.file}: {cluster.name}",
        user_key=f"{user.file}: {user.name}",
        warnings=tuple(_warnings(cluster, user, insecure=insecure, has_other=has_other)),
    )


def _server(cluster: Section) -> SplitResult:
    server = cluster.text("server")
    try:
        address = urlsplit(server if "://" in server else f"https://{server}")
        usable = address.scheme == "https" and address.hostname and (address.port or 443) > 0
    except ValueError:
        usable = None
        address = SplitResult("", "", "", "", "")
    if not server or not usable or "@" in address.netloc:
        raise SourceError(f"{cluster.where('server')}: expected https://<host>[:<port>]")
    return address


def _plugin(
    cluster: Section, user: Section, ca: Part | None, plugins: Plugins | None
) -> Plugin | None:
    if not user.fields.get("exec"):
        return None
    # Few nodes have one: the others do not pay for it.
    from checkpointd.clients import exec_plugin, kubeconfig_exec

    spec = kubeconfig_exec.read_spec(cluster, user, ca)
    return exec_plugin.Plugin(spec) if plugins is None else plugins(spec)


def _proxy(cluster: Section) -> http_proxy.Proxy | None:
    url = cluster.text("proxy-url")
    return http_proxy.parse(url, cluster.where("proxy-url")) if url else None


def _tokens(user: Section) -> tuple[Part | None, Part | None]:
    """Return the token, and what is used where its file cannot be read.

    tokenFile wins, as client-go reads it again and again.
    """
    from_file, token = user.file_part("tokenFile"), user.text("token")
    embedded = Part(key=user.where("token"), embedded=token.encode()) if token else None
    return (embedded, None) if from_file is None else (from_file, embedded)


def _warnings(cluster: Section, user: Section, *, insecure: bool, has_other: bool) -> list[str]:
    found: list[str] = []
    if insecure:
        where = cluster.where("insecure-skip-tls-verify")
        found.append(
            f"{where}: the API server's certificate is not verified: anybody may pose as it"
        )
    if has_other and user.fields.get("exec"):
        found.append(f"{user.where('exec')}: not used: the user has other credentials too")
    return found
