"""Hold what a kubeconfig says of one server and one user, and read what it names.

All that is shown to a server is read at one moment, as a whole. No value of it is in a repr.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from checkpointd.clients import key_files
from checkpointd.clients.http_proxy import Proxy
from checkpointd.clients.key_files import Part
from checkpointd.errors import SourceError

if TYPE_CHECKING:
    from checkpointd.clients.exec_plugin import Login, Plugin


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """Hold the content of all that credentials name, of one moment.

    ``pair`` is the PEM of the client's certificate and key, ``token`` goes into a header, ``login``
    is what they are from where a plugin gave them. Empty is what is not used.
    """

    ca: bytes = field(default=b"", repr=False)
    pair: bytes = field(default=b"", repr=False)
    token: str = field(default="", repr=False)
    login: Login | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Hold what a kubeconfig's current context says.

    ``verify_name`` is the name that the server's certificate must carry. ``ca`` is None only where
    ``insecure``. ``other_token`` counts where the file of ``token`` cannot be read. ``cluster_key``
    and ``user_key`` name kubeconfig and entry in errors. ``warnings`` are sentences for the log.
    """

    host: str
    port: int
    prefix: str
    verify_name: str
    insecure: bool
    ca: Part | None = None
    client_certificate: Part | None = None
    client_key: Part | None = None
    token: Part | None = None
    other_token: Part | None = None
    plugin: Plugin | None = None
    proxy: Proxy | None = None
    cluster_key: str = "kubeconfig"
    user_key: str = "kubeconfig"
    warnings: tuple[str, ...] = ()

    @property
    def server(self) -> str:
        """Return host and port for people."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def read(self) -> Secrets:
        """Read all that is named; run the plugin if need be. Raises SourceError."""
        if self.plugin is None:
            return self._read_files()
        login = self.plugin.login()
        return Secrets(ca=self._read_ca(), pair=login.pair, token=login.token, login=login)

    def read_known(self) -> Secrets:
        """Do the same, but without running a plugin. Raises SourceError."""
        if self.plugin is None:
            return self._read_files()
        login = self.plugin.known
        if login is None:
            raise SourceError(f"{self.user_key}: the plugin has given nothing yet")
        return Secrets(ca=self._read_ca(), pair=login.pair, token=login.token, login=login)

    def read_token(self) -> str:
        """Return the bearer token, "" where there is none. Raises SourceError."""
        if self.plugin is not None:
            return self.plugin.login().token
        if self.token is None:
            return ""
        try:
            return key_files.check_token(self.token.read(), self.token.key)
        except SourceError:
            # client-go's NewBearerAuthWithRefreshRoundTripper goes on with the one it was given.
            if self.other_token is None:
                raise
            return key_files.check_token(self.other_token.read(), self.other_token.key)

    def _read_files(self) -> Secrets:
        pair = b""
        if self.client_certificate is not None and self.client_key is not None:
            pair = key_files.read_pair(self.client_certificate, self.client_key)
        return Secrets(ca=self._read_ca(), pair=pair, token=self.read_token())

    def _read_ca(self) -> bytes:
        return b"" if self.ca is None else self.ca.read()
