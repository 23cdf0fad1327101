"""Read a kubeconfig's exec section: which plugin gives the credentials, and what it is told."""

from __future__ import annotations

from checkpointd import json_fields
from checkpointd.clients import exec_plugin
from checkpointd.clients.exec_plugin import Spec
from checkpointd.clients.key_files import Part
from checkpointd.clients.kubeconfig_section import Section
from checkpointd.errors import FieldError, SourceError

EXEC_EXTENSION = "client.authentication.k8s.io/exec"
"""k8s.io/client-go/tools/clientcmd/client_config.go, clusterExtensionKey."""


def read_spec(cluster: Section, user: Section, ca: Part | None) -> Spec:
    """Return what a user's exec section says. Raises SourceError."""
    section = Section(user.file, f"{user.name}.exec", user.get(json_fields.mapping, "exec"))
    version, command = section.text("apiVersion"), section.text("command")
    if version not in exec_plugin.VERSIONS:
        one_of = " or ".join(exec_plugin.VERSIONS)
        raise SourceError(f"{section.where('apiVersion')}: expected {one_of}")
    if not command:
        raise SourceError(f"{section.where('command')}: missing: name the plugin's program")
    _check_mode(section, version)
    told = section.boolean("provideClusterInfo")
    return Spec(
        key=section.where("command"),
        api_version=version,
        # As client-go has it: a bare name is looked for in PATH.
        command=str(section.file.parent / command) if "/" in command else command,
        arguments=section.texts("args"),
        environment=tuple(_variables(section)),
        install_hint=section.text("installHint"),
        cluster=_cluster_info(cluster) if told else None,
        ca=ca if told else None,
    )


def _check_mode(section: Section, version: str) -> None:
    mode = section.text("interactiveMode")
    if not mode and version == exec_plugin.VERSIONS[0]:
        raise SourceError(f"{section.where('interactiveMode')}: missing: set it to Never")
    if mode == "Always":
        raise SourceError(
            f"{section.where('interactiveMode')}: Always, but a daemon has no terminal: set it to "
            "Never or IfAvailable, with a plugin that asks nobody"
        )
    if mode not in ("", "Never", "IfAvailable"):
        raise SourceError(f"{section.where('interactiveMode')}: expected Never or IfAvailable")


def _variables(section: Section) -> list[tuple[str, str]]:
    try:
        found = [
            (json_fields.text(one, "name"), json_fields.optional_text(one, "value"))
            for one in section.get(json_fields.objects, "env")
        ]
    except FieldError as error:
        raise SourceError(f"{section.where('env')}: {error}") from error
    if any(not name or "=" in name for name, _ in found):
        raise SourceError(f"{section.where('env')}: a variable without a usable name")
    return found


def _cluster_info(cluster: Section) -> dict[str, object]:
    """Return what a plugin may know (client-go's tools/clientcmd/client_config.go, ExecCluster)."""
    names = (
        "server", "tls-server-name", "insecure-skip-tls-verify", "proxy-url", "disable-compression",
    )  # fmt: skip
    found = {name: cluster.fields[name] for name in names if cluster.fields.get(name)}
    for extension in cluster.get(json_fields.objects, "extensions"):
        if extension.get("name") == EXEC_EXTENSION and extension.get("extension"):
            found["config"] = extension["extension"]
    return found
