"""Lay out a kubelet's pki directory: serving certificates self-signed or signed by the cluster."""

from __future__ import annotations

import ssl
from pathlib import Path

from tests.fakes import pki


class KubeletPki:
    """Fill ``<root>/pki`` and serve with it; ``cluster`` is the CA that clients are signed by.

    ``kubelet.crt`` is as InitializeTLS makes it: a certificate for the node's name, followed by the
    CA that signed it and whose key was thrown away.
    """

    def __init__(self, directory: Path, node_name: str, cluster: pki.Authority) -> None:
        self.directory = directory
        self.node_name = node_name
        self.cluster = cluster
        directory.mkdir(parents=True, exist_ok=True)
        self.ca_file = directory / "ca.crt"
        self.ca_file.write_bytes(cluster.certificate)
        self._served = self.serve_self_signed()

    def serve_self_signed(self) -> Path:
        """Serve with a certificate that only the file itself can vouch for."""
        own = pki.Authority(f"{self.node_name}-ca@1700000000")
        pair = own.server(self.node_name)
        (self.directory / "kubelet.crt").write_bytes(pair.certificate + own.certificate)
        self._served = self._serve(pair)
        return self._served

    def serve_signed_by_cluster(self, *names: str) -> None:
        """Serve with a certificate that the cluster's CA signed; take the pinned file away."""
        self._serve(self.cluster.server(*(names or (self.node_name,))))
        (self.directory / "kubelet.crt").unlink(missing_ok=True)

    def server_context(self) -> ssl.SSLContext:
        """Return the TLS context of the secure port; clients may show a certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._served)
        context.load_verify_locations(self.ca_file)
        context.verify_mode = ssl.CERT_OPTIONAL
        return context

    def _serve(self, pair: pki.Pair) -> Path:
        path = self.directory / "fake-serving.pem"
        path.write_bytes(pair.certificate + pair.key)
        return path
