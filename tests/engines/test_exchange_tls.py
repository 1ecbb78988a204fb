"""Requests over TLS, against a real server with a certificate made here: who is trusted, and that
a body which is cut is no answer."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

if shutil.which("openssl") is None:
    pytest.skip("openssl makes the certificate", allow_module_level=True)

from gem_ma.engines.endpoint.client import Client
from gem_ma.engines.endpoint.endpoint import Secret
from gem_ma.engines.endpoint.faults import Fault

WHOLE = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
CUT = b"HTTP/1.1 200 OK\r\ncontent-length: 200\r\n\r\n{}"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `key.pem` and `certificate.pem`, which names localhost alone."""
    folder = tmp_path_factory.mktemp("tls")
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -keyout key.pem"
    name = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    command = ["openssl", *words.split(), "-out", "certificate.pem", *name]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder


def answered(folder: Path, answer: bytes, host: str = "localhost", tls: bool = True) -> object:
    """What comes of a POST over https: a body with its type, or a Fault."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await (reader.readuntil(b"\r\n\r\n") if tls else reader.read(1))
        writer.write(answer)
        await writer.drain()
        writer.transport.abort()

    async def work() -> object:
        context = None
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        client = Client(f"https://{host}:{port}/v1", Secret("EMPTY"), 4)
        try:
            return await client.post("/x", {"text": "x" * 99999}, timeout_s=5.0, most_bytes=999)
        except Fault as fault:
            return fault
        finally:
            server.close()

    return asyncio.run(work())


def test_a_server_whose_certificate_is_trusted_is_asked(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "certificate.pem"))
    assert answered(certificate, WHOLE) == (b"{}", "application/json")


@pytest.mark.parametrize("case", ["nobody vouches for it", "it names another host", "no TLS"])
def test_another_server_is_not(
    certificate: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    if case != "nobody vouches for it":
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "certificate.pem"))
    host = "127.0.0.1" if case == "it names another host" else "localhost"
    fault = answered(certificate, WHOLE, host, tls=case != "no TLS")
    assert isinstance(fault, Fault) and "SSL" in str(fault)


def test_a_body_that_is_cut_is_no_answer(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "certificate.pem"))
    assert isinstance(answered(certificate, CUT), Fault)
