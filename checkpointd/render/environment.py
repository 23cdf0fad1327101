"""Write into a copy's environment what is no longer true of the copy itself: its parent's name.

``$(VAR)`` is expanded by the kubelet, as before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from checkpointd import json_fields
from checkpointd.json_fields import Json
from checkpointd.model.files import Refusal
from checkpointd.render import wire

_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['(.*)'\]", re.DOTALL)
_REFERENCES = {"secretKeyRef": "a Secret's key", "configMapKeyRef": "a ConfigMap's key"}
_ENV_REMEDY = "mount it as a volume and read the file"


def rewrite(container: Json, parent: Json, service: Mapping[str, str]) -> Json:
    """Return the container with the parent's identity as literals. Raises FieldError.

    ``service`` are KUBERNETES_SERVICE_HOST and _PORT as the parent had them: a kubelet that never
    saw the API server gives none (K-13). They come first, where ``$(VAR)`` can see them, and never
    replace one that the pod sets.
    """
    own = json_fields.objects(container, "env")
    named = {json_fields.optional_text(variable, "name") for variable in own}
    given = [{"name": key, "value": service[key]} for key in sorted(service) if key not in named]
    if not own and not given:
        return container
    return {**container, "env": [*given, *(_literal(variable, parent) for variable in own)]}


def refusals(pod: Json) -> Iterator[Refusal]:
    """Yield the references to secrets and configMaps. Raises FieldError."""
    for path, container in wire.containers(pod):
        if json_fields.sequence(container, "envFrom"):
            yield Refusal(
                field=f"{path}.envFrom",
                reason="the environment comes from a Secret or ConfigMap, which is not yet kept",
                remedy=_ENV_REMEDY,
            )
        for index, variable in enumerate(json_fields.objects(container, "env")):
            for kind, words in _REFERENCES.items():
                if json_fields.has_field(variable, "valueFrom", kind):
                    yield Refusal(
                        field=f"{path}.env[{index}].valueFrom.{kind}",
                        reason=f"the value is {words}, which is not yet kept",
                        remedy=_ENV_REMEDY,
                    )


def _literal(variable: Json, parent: Json) -> Json:
    field_path = json_fields.optional_text(variable, "valueFrom", "fieldRef", "fieldPath")
    value = _parents(field_path, parent)
    if value is None:
        return variable
    # The kubelet expands literals but not values from fields: "$$" stands for "$"
    # (third_party/forked/golang/expansion/expand.go).
    return {"name": json_fields.text(variable, "name"), "value": value.replace("$", "$$")}


def _parents(field_path: str, parent: Json) -> str | None:
    """Return the parent's value; None for spec.nodeName and status.*, which stay true."""
    if field_path in ("metadata.name", "metadata.namespace", "metadata.uid"):
        return json_fields.optional_text(parent, *field_path.split("."))
    if field_path == "spec.serviceAccountName":
        return json_fields.optional_text(parent, "spec", "serviceAccountName")
    subscript = _SUBSCRIPT.fullmatch(field_path)
    if subscript is None:
        return None
    # An absent label is an empty value (fieldpath.go: ExtractFieldPathAsString).
    return json_fields.texts(parent, "metadata", subscript[1]).get(subscript[2], "")
