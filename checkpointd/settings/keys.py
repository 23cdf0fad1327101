"""List every option of the configuration once: the table that all else is made from.

Rule of this table: a default stands in the settings' classes alone; a bound stands here alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import cast

from checkpointd.model.policy import Witness
from checkpointd.settings.nouns import Settings
from checkpointd.settings.values import Kind

HOUR = 3600.0
DAY = 24 * HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """Describe one option.

    ``field`` is the path of attributes in Settings. ``least`` and ``most`` bound what is a number
    (times in seconds, sizes in bytes).
    """

    section: str
    option: str
    kind: Kind
    field: str
    meaning: str
    least: float | None = None
    most: float | None = None

    @property
    def name(self) -> str:
        """Return the dotted key, as problems and ``checkpointd config`` name it."""
        return f"{self.section}.{self.option}"

    @property
    def default(self) -> object:
        """Return what holds where no file sets the key."""
        return self.value_in(Settings())

    def value_in(self, settings: Settings) -> object:
        """Return what ``settings`` say for this key."""
        start: object = settings
        value = reduce(_attribute, self.field.split("."), start)
        return self.option in _names(value) if self.section == "witnesses" else value


def _attribute(of: object, name: str) -> object:
    found: object = getattr(of, name)
    return found


def _names(witnesses: object) -> frozenset[str]:
    return frozenset(witness.value for witness in cast("frozenset[Witness]", witnesses))


def _time(option: str, least: float, most: float, meaning: str) -> Key:
    return Key(
        section="times",
        option=option,
        kind=Kind.DURATION,
        field="policy.times." + option.replace("-", "_"),
        meaning=meaning,
        least=least,
        most=most,
    )


def _kubelet(option: str, kind: Kind, meaning: str, most: float | None = None) -> Key:
    return Key(
        section="kubelet",
        option=option,
        kind=kind,
        field="kubelet." + option.replace("-", "_"),
        meaning=meaning,
        least=None if most is None else 0,
        most=most,
    )


def _place(option: str, meaning: str) -> Key:
    field = "paths." + option.replace("-", "_")
    return Key(section="paths", option=option, kind=Kind.PATH, field=field, meaning=meaning)


def _witness(option: str, meaning: str) -> Key:
    return Key(
        section="witnesses",
        option=option,
        kind=Kind.SWITCH,
        field="policy.witnesses",
        meaning=meaning,
    )


SECTIONS: Mapping[str, str] = {
    "node": "This node.",
    "selection": "Which pods may be marked for a checkpoint.",
    "kubelet": 'What is found from the running kubelet unless it is set here ("" and 0: find it).',
    "witnesses": "Who is believed on whether a pod runs. Switch one off only if it is wrong.",
    "times": "Deadlines. The defaults were chosen with care; the rules are those of the manual.",
    "log": "What is written to the journal.",
    "paths": "Places of the host; for tests. Changed only by a restart.",
}
"""The sections in the order of the shipped file, with their headings."""

KEYS: tuple[Key, ...] = (
    Key(
        section="node",
        option="name",
        kind=Kind.NODE_NAME,
        field="policy.node_name",
        meaning='The Node object\'s name; "": as the kubelet says.',
    ),
    Key(
        section="selection",
        option="namespaces",
        kind=Kind.NAMESPACES,
        field="policy.selection.namespaces",
        meaning="The annotation checkpointd.io/checkpoint counts in these namespaces only.",
    ),
    Key(
        section="selection",
        option="max-pods",
        kind=Kind.COUNT,
        field="policy.selection.max_pods",
        meaning="At most so many checkpoints per namespace.",
        least=1,
        most=1000,
    ),
    Key(
        section="selection",
        option="max-bytes",
        kind=Kind.SIZE,
        field="policy.selection.max_bytes",
        meaning="At most so many bytes of volume files per namespace.",
        least=1 << 10,
        most=10 << 30,
    ),
    Key(
        section="selection",
        option="rule",
        kind=Kind.RULES,
        field="policy.selection.rules",
        meaning="Marks the pods of one namespace that carry all labels, without annotation. "
        "A later file's rules replace an earlier one's.",
    ),
    _kubelet("manifest-dir", Kind.PATH, "The static-pod directory (staticPodPath)."),
    _kubelet("root-dir", Kind.PATH, "Where the kubelet keeps the volumes of pods (--root-dir)."),
    _kubelet("cri-socket", Kind.PATH, "The container runtime's socket, without unix://."),
    _kubelet("kubeconfig", Kind.PATH, "How to reach the API server, and as whom."),
    _kubelet("address", Kind.ADDRESS, "Where the kubelet's ports listen."),
    _kubelet("port", Kind.COUNT, "The kubelet's port with TLS (10250).", 65535),
    _kubelet("read-only-port", Kind.COUNT, "The kubelet's port without TLS (10255).", 65535),
    _kubelet("healthz-port", Kind.COUNT, "The kubelet's healthz port (10248).", 65535),
    _kubelet("ca-file", Kind.PATH, "The CA that signed the kubelet's certificate."),
    _kubelet("server-certificate", Kind.PATH, "Or the kubelet's certificate itself, pinned."),
    _kubelet(
        "client-certificate",
        Kind.PATH,
        "Ours for that port; else the kubeconfig's.",
    ),
    _kubelet("client-key", Kind.PATH, "Its key."),
    _witness("runtime", "The container runtime (CRI)."),
    _witness("kernel", "Processes in the pods' cgroups."),
    _witness("runningpods", "The kubelet's /runningpods/, where the two above know nothing."),
    _time("refused-within", 0.1, 600, "API refused twice within this: Unknown."),
    _time("silent-for", 1, 600, "API without a usable answer for this: Unknown."),
    _time("answers-apart", 0.1, 600, "Two API answers so far apart: Seen again."),
    _time("boot-hold", 0, HOUR, "3a: wait so long for an API server before a start."),
    _time("boot-hold-blocking", 0, HOUR, "3a: the same for a copy that blocks its parent."),
    _time("boot-hold-at-most", 1, HOUR, "3a: after our start, wait so long for kubelet and route."),
    Key(
        section="times",
        option="jitter",
        kind=Kind.RATIO,
        field="policy.times.jitter",
        meaning="3a: lengthen a hold by up to this share, differently on each node.",
        least=0,
        most=1,
    ),
    _time("tombstone-hold", 0, HOUR, "3b: API Unknown for this: a deleted pod may come back."),
    _time("cut-off", 1, HOUR, "3c: the kubelet cut off from the API for this."),
    _time("lease-stale", 1, 600, "3c: the kubelet's lease not renewed for this (else each 10s)."),
    _time(
        "unlisted-for", 1, 600, "A kubelet that has not listed a pod for this starts it no more."
    ),
    _time("hand-back", 1, HOUR, "4: the copy returns if the other does not run after this."),
    _time("hand-back-ready", 0, HOUR, "4: the other must have been ready for this."),
    Key(
        section="times",
        option="hand-back-exits",
        kind=Kind.COUNT,
        field="policy.times.hand_back_exits",
        meaning="4: the copy returns if the other exited so often.",
        least=1,
        most=100,
    ),
    _time("retire-daemon-set", 0, DAY, "5: its DaemonSet has not wanted this node for this."),
    _time("retire-node-deleted", 1, 30 * DAY, "5: copies stop so long after the Node was deleted."),
    _time("retire-store", 1, 30 * DAY, "5: a checkpoint is kept so long after its pod went."),
    _time("min-dwell", 0, HOUR, "7: between a stop and the next start of one checkpoint."),
    _time("crash-back-off", 0, HOUR, "4: the kubelet's first crash back-off; it doubles."),
    _time("crash-back-off-most", 0, HOUR, "4: the kubelet's longest crash back-off."),
    _time("start-deadline", 1, HOUR, "8: a copy must show up in the runtime within this."),
    _time("offer-again", 1, HOUR, "8: if not, it is offered again after this, doubling,"),
    _time("offer-again-most", 1, DAY, "8: up to this."),
    _time("proven-after", 1, HOUR, "2: a container Ready for this proves its generation."),
    _time("stop-quiet", 1, 600, "9: a stopped copy must stay gone for this."),
    _time("stop-extra", 0, 600, "9: beyond its grace, before it is stopped through the runtime."),
    Key(
        section="log",
        option="level",
        kind=Kind.LEVEL,
        field="log_level",
        meaning="debug, info, notice, warning or error.",
    ),
    _place("proc", "procfs."),
    _place("cgroup", "The cgroup file system."),
    _place("state", "Checkpoints and all that must outlive a reboot."),
    _place("run", "status.json and what must not outlive one."),
    _place("boot-id", "The file with the kernel's boot id."),
    _place("manager-socket", "PID 1's private socket."),
)
