"""A real S3 server on this machine, and the same images in every kind of place."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from adascale.core.extras import optional

BUCKET = "bucket"


@contextmanager
def s3_server() -> Iterator[Any]:
    """fsspec's file system of an S3 server with one bucket; credentials are in the environment meanwhile."""
    server_module = pytest.importorskip("moto.server")
    s3fs = pytest.importorskip("s3fs")
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    known = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1"}
    with pytest.MonkeyPatch.context() as patched:
        for name, value in {**known, "AWS_ENDPOINT_URL": f"http://{host}:{port}"}.items():
            patched.setenv(name, value)
        s3fs.S3FileSystem.clear_instance_cache()
        system = s3fs.S3FileSystem()
        system.mkdir(BUCKET)
        try:
            yield system
        finally:
            s3fs.S3FileSystem.clear_instance_cache()
            server.stop()


def tar_of(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def parquet_of(images: list[bytes], labels: list[int], group: int = 4) -> bytes:
    """As the Hugging Face hub has them: ``image`` with bytes and path, and ``label``."""
    pyarrow, parquet = optional("pyarrow", "parquet"), optional("pyarrow.parquet", "parquet")
    buffer = io.BytesIO()
    cells = [{"bytes": data, "path": None} for data in images]
    parquet.write_table(pyarrow.table({"image": cells, "label": labels}), buffer, row_group_size=group)
    return buffer.getvalue()


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a folder by their names in it, in order."""
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*.png"))}
