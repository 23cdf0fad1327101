"""Keys and certificates of a cluster, made with openssl on the host."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

# Without a configuration of our own `openssl req` would make every certificate an authority.
CONFIG = "[req]\ndistinguished_name = name\n[name]\n"


@dataclass(frozen=True)
class Certificate:
    """A certificate and its key, as PEM files on the host."""

    certificate: Path
    key: Path


class Authority:
    """A cluster's certificate authority, in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        """Make the authority and the service-account key."""
        directory.mkdir(parents=True)
        self.directory = directory
        (directory / "openssl.cnf").write_text(CONFIG)
        self.certificate = directory / "ca.crt"
        self._make("ca", "/CN=kubernetes", ["basicConstraints=critical,CA:TRUE"], [])
        self.service_account_key = directory / "sa.key"
        self.service_account_public_key = directory / "sa.pub"
        openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout",
                "-out", self.service_account_key)  # fmt: skip
        openssl("ec", "-in", self.service_account_key, "-pubout",
                "-out", self.service_account_public_key)  # fmt: skip

    def issue(self, name: str, subject: str, hosts: tuple[str, ...] = ()) -> Certificate:
        """Issue a certificate for client and server.

        `subject` is as in "/O=system:nodes/CN=system:node:n1"; `hosts` are "IP:…" and "DNS:…".
        """
        extensions = ["extendedKeyUsage=serverAuth,clientAuth"]
        if hosts:
            extensions.append(f"subjectAltName={','.join(hosts)}")
        signer: list[str | Path] = [
            "-CA", self.certificate, "-CAkey", self.directory / "ca.key",
        ]  # fmt: skip
        return self._make(name, subject, extensions, signer)

    def _make(
        self, name: str, subject: str, extensions: list[str], signer: list[str | Path]
    ) -> Certificate:
        made = Certificate(self.directory / f"{name}.crt", self.directory / f"{name}.key")
        added = [word for extension in extensions for word in ("-addext", extension)]
        openssl("req", "-x509", "-config", self.directory / "openssl.cnf", "-newkey", "ec",
                "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30",
                "-subj", subject, "-keyout", made.key, "-out", made.certificate,
                *added, *signer)  # fmt: skip
        return made


def openssl(*arguments: str | Path) -> None:
    """Run openssl; a failure shows what it said."""
    done = subprocess.run(["openssl", *arguments], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(f"openssl {arguments}\n{done.stderr}")
