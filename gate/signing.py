"""Signing a statement and opening a signed one: a DSSE envelope by securesystemslib, with a PEM key.

Only the statement's bytes are signed (DSSE's PAE), whatever they say; what they say is `gate.attestation`'s matter.
The envelope's own bytes are held to one spelling, so that a byte changed outside the signed part is caught too.
Format: https://github.com/secure-systems-lab/dsse (payload type of in-toto's envelope layer).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from securesystemslib.dsse import Envelope
    from securesystemslib.signer import SSlibKey

PAYLOAD_TYPE = "application/vnd.in-toto+json"


class SigningError(ValueError):
    """A key or a file that can't be read as one. The message says what was expected, found, and what to do."""


class SignatureError(ValueError):
    """An envelope whose signature, or whose spelling, doesn't hold: its statement must not be believed."""


class Opened(msgspec.Struct, frozen=True):
    """A statement's bytes, and the id of the key whose signature over them holds (None: it isn't signed)."""

    payload: bytes
    keyid: str | None


def sign(statement: bytes, private_key: bytes, passphrase: bytes | None = None) -> bytes:
    """The envelope around a statement, signed with a PEM private key (Ed25519, ECDSA P-256/384/521 or RSA).

    Raises SigningError where the key can't be read or is of another kind.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from securesystemslib.dsse import Envelope
    from securesystemslib.signer import CryptoSigner

    try:
        signer = CryptoSigner(load_pem_private_key(private_key, passphrase))
    except (ValueError, TypeError, UnsupportedAlgorithm) as e:
        raise SigningError(
            f"expected a PEM private key (Ed25519, ECDSA or RSA, with its passphrase if it has one), found something "
            f"else: {e}. Make one with: openssl genpkey -algorithm ed25519 -out gate.key"
        ) from e
    envelope = Envelope(statement, PAYLOAD_TYPE, {})
    envelope.sign(signer)
    return _spell(envelope)


def open_envelope(raw: bytes, public_key: bytes | None) -> Opened:
    """The statement in `raw`, which is an envelope or a bare statement; a signature is checked with a PEM public key.

    Raises SignatureError where the signature doesn't hold or there is none of this key; SigningError where file or
    key can't be read, or there is a signature and no key (unchecked, it would look like a checked one).
    """
    fields = _decode(raw)
    if "payloadType" not in fields and "signatures" not in fields:
        if public_key is not None:
            raise SignatureError(
                "expected a statement signed with the given key, found one that is not signed"
            )
        return Opened(raw, None)
    if public_key is None:
        raise SigningError(
            "the statement is signed and no key was given to check it with: give the signer's public key (PEM)"
        )
    key = _public(public_key)
    envelope = _parse(raw, fields)
    from securesystemslib.exceptions import VerificationError

    signed_by = next(iter(envelope.signatures))
    if signed_by != key.keyid:
        raise SignatureError(f"expected a signature of key {key.keyid}, found one of key {signed_by}")
    try:
        envelope.verify([key], 1)
    except (VerificationError, ValueError) as e:
        raise SignatureError(
            f"the signature of key {key.keyid} doesn't hold: the statement isn't what was signed"
        ) from e
    return Opened(envelope.payload, key.keyid)


def _public(pem: bytes) -> SSlibKey:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_public_key
    from securesystemslib.signer import SSlibKey

    try:
        return SSlibKey.from_crypto(load_pem_public_key(pem))
    except (ValueError, UnsupportedAlgorithm) as e:
        raise SigningError(
            f"expected a PEM public key (Ed25519, ECDSA or RSA), found something else: {e}. "
            "Get it from the private one with: openssl pkey -in gate.key -pubout"
        ) from e


def _parse(raw: bytes, fields: dict[str, Any]) -> Envelope:
    from securesystemslib.dsse import Envelope
    from securesystemslib.exceptions import Error

    try:
        envelope = Envelope.from_dict(fields)
        spelled = _spell(envelope)
    except (KeyError, TypeError, ValueError, AttributeError, Error) as e:
        raise SignatureError(
            f"expected a DSSE envelope (payload, payloadType, signatures), found one that isn't: {e}"
        ) from e
    if spelled != raw:
        raise SignatureError(
            "the envelope isn't spelled as `gate` writes it: bytes outside the signed part were changed, or another "
            "tool wrote it"
        )
    if envelope.payload_type != PAYLOAD_TYPE:
        raise SignatureError(f"expected the payload type {PAYLOAD_TYPE}, found {envelope.payload_type!r}")
    if len(envelope.signatures) != 1:
        raise SignatureError(f"expected one signature, found {len(envelope.signatures)}")
    return envelope


def _spell(envelope: Envelope) -> bytes:
    """The one spelling of an envelope."""
    return msgspec.json.format(msgspec.json.encode(envelope.to_dict(), order="sorted")) + b"\n"


def _decode(raw: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(raw, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as e:
        raise SigningError(
            f"expected a statement or an envelope (a JSON object), found something else: {e}"
        ) from e
