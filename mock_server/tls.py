"""HTTPS with a given certificate, or with one from an authority that is created for this run."""

from __future__ import annotations

import dataclasses
import ssl
from pathlib import Path

from delta_sharing_client.redact import Secret

from .errors import ConfigError

_NAMES = ("localhost", "127.0.0.1", "::1")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tls:
    """A certificate chain and its key as PEM files; without them, a certificate for this machine is created."""

    certificate: Path | None = None
    key: Path | None = None
    password: Secret | None = None

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise ConfigError("A certificate and its key are needed together: give both files.")


@dataclasses.dataclass(frozen=True, slots=True)
class TlsFiles:
    """The files of a server; ``authority`` is the certificate that its clients must trust, if it was created here."""

    certificate: Path
    key: Path
    password: Secret | None = None
    authority: Path | None = None


def prepare(tls: Tls, folder: Path, authority: Path) -> TlsFiles:
    """Return the files for uvicorn. New files are written to ``folder``, and a new authority's certificate to
    ``authority``.

    Raises `ConfigError` if the files cannot be used.
    """
    if tls.certificate is None or tls.key is None:
        return _self_made(folder, authority)
    password = None if tls.password is None else tls.password.reveal()
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tls.certificate, tls.key, password or "")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or getattr(error, "reason", None) or "they are not PEM files"
        raise ConfigError(
            f"'{tls.certificate}' and '{tls.key}' are not a certificate and its key: {reason}."
        ) from error
    return TlsFiles(tls.certificate, tls.key, tls.password)


def _self_made(folder: Path, authority: Path) -> TlsFiles:
    try:
        import trustme
    except ImportError as error:
        raise ConfigError(
            "Creating a certificate needs trustme: run pip install 'delta-sharing-client[server-tls]', or give a "
            "certificate."
        ) from error
    made = trustme.CA()
    certificate = made.issue_cert(*_NAMES)
    chain = folder / "certificate.pem"
    certificate.private_key_and_cert_chain_pem.write_to_path(str(chain))
    chain.chmod(0o600)
    made.cert_pem.write_to_path(str(authority))
    return TlsFiles(chain, chain, authority=authority)
