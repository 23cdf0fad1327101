"""Say of a denial which permission is missing, what that costs and what would grant it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from checkpointd.errors import RejectedError
from checkpointd.model.permissions import Permission

FORBIDDEN = 403


@contextmanager
def explained(permission: Permission) -> Generator[None]:
    """Let a 403 within say that this permission is missing. Raises what is raised within."""
    try:
        yield
    except RejectedError as error:
        if error.status != FORBIDDEN:
            raise
        told = f"{error}: {permission.explain_denial()}"
        raise RejectedError(told, error.status, error.retry_after) from error
