"""Parse YAML that others wrote: the kubelet's files and root's, which may hold anything.

The one module that imports PyYAML, and only when it is called: 0.8 MiB and 30 ms that a node with
JSON alone does not pay.
"""

from __future__ import annotations

from checkpointd.errors import FieldError


def parse_first(content: bytes, what: str) -> object:
    """Return the first document, None for an empty one. Raises FieldError that names ``what``.

    The kubelet and client-go take the first document too (sigs.k8s.io/yaml). No value of the text
    is told of: a library's message may quote the line, and a line may hold a key.
    """
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return next(iter(yaml.load_all(content, Loader=loader)), None)
    except (
        yaml.YAMLError,
        RecursionError,
        ValueError,
        # What PyYAML lets through for a tag whose text does not fit: "!!bool x", "!!int ''",
        # "!!timestamp x" (yaml/constructor.py, construct_yaml_*).
        LookupError,
        AttributeError,
        TypeError,
        ArithmeticError,
    ) as error:
        line: object = getattr(getattr(error, "problem_mark", None), "line", None)
        place = f" in line {line + 1}" if isinstance(line, int) else ""
        raise FieldError(f"{what}: neither JSON nor YAML{place} ({type(error).__name__})") from None
