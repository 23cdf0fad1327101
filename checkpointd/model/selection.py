"""Say which pods are marked for a checkpoint. Pure; used where pods are parsed and in ``check``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from checkpointd.model import pods


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Mark the pods of ``namespace`` that carry all ``labels`` (root's configuration)."""

    namespace: str
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Hold root's word on what may be marked.

    Annotations count only in ``namespaces`` (design, section 8); ``rules`` count anywhere. The caps
    hold per namespace.
    """

    namespaces: tuple[str, ...] = ("kube-system",)
    rules: tuple[Rule, ...] = ()
    max_pods: int = 20
    max_bytes: int = 50 * 1024 * 1024


LONGEST_VALUE = 40
"""Characters of an annotation that are shown: its namespace's users may make it 256 KiB long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Say whether a pod is marked, and why a mark that it carries does not count."""

    marked: bool
    note: str = ""


def find_mark(
    selection: Selection, namespace: str, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> Mark:
    """Decide whether a pod is marked.

    Static pods, mirror pods and copies are never parents (kubelet facts K-6, K-9).
    """
    asked = [
        (key, annotations[key])
        for key in (pods.CHECKPOINT_MARK, pods.LEGACY_CHECKPOINT_MARK)
        if key in annotations
    ]
    by_rule = any(
        rule.namespace == namespace and rule.labels.items() <= labels.items()
        for rule in selection.rules
    )
    if not asked and not by_rule:
        return Mark(marked=False)
    kind = _non_parent(annotations)
    if kind:
        return Mark(marked=False, note=f"{kind} is never a parent")
    if by_rule or any(
        value == "true" and namespace in selection.namespaces for _key, value in asked
    ):
        return Mark(marked=True)
    key, value = asked[0]
    if value != "true":
        shown = value if len(value) <= LONGEST_VALUE else f"{value[:LONGEST_VALUE]}..."
        note = "" if value == "false" else f'annotation {key} is "{shown}", only "true" counts'
        return Mark(marked=False, note=note)
    return Mark(
        marked=False,
        note=f"annotation {key} counts only in the namespaces listed under [selection] namespaces",
    )


def _non_parent(annotations: Mapping[str, str]) -> str:
    if "kubernetes.io/config.mirror" in annotations:
        return "a mirror pod"
    if annotations.get("kubernetes.io/config.source", "api") != "api":
        return "a static pod"
    if pods.LEGACY_CHECKPOINT_OF in annotations or pods.COPY_SLOT in annotations:
        return "a copy"
    return ""
