"""How a folder becomes a dataset: in one step, and only where nothing else lies."""

from __future__ import annotations

import os
import secrets

from mavstream_protocol.manifest import MANIFEST, InvalidDataset
from mavstream_spark.datasets.storage import Storage


def check_free(storage: Storage, folder: str, overwrite: bool) -> None:
    """Raise InvalidDataset if a place is taken."""
    if not storage.exists(folder) or storage.is_empty(folder):
        return
    if not storage.exists(f"{folder}/{MANIFEST}"):
        raise InvalidDataset(f"'{folder}' is there and is no dataset: give a new folder as --out")
    if not overwrite:
        raise InvalidDataset(f"'{folder}' holds a dataset: give a new folder, or --overwrite to replace it")


def publish(storage: Storage, unfinished: str, folder: str, overwrite: bool) -> None:
    """Move what was written to its place; raises InvalidDataset if that is taken meanwhile."""
    replaced = None
    if storage.exists(folder):
        # Checked again: something may have come while the job ran.
        check_free(storage, folder, overwrite)
        replaced = storage.sibling(folder, f".{storage.name(folder)}.{secrets.token_hex(4)}.replaced")
        storage.rename(folder, replaced)
    if not storage.rename(unfinished, folder):
        if replaced is not None:
            storage.rename(replaced, folder)
        raise InvalidDataset(f"'{folder}' could not be put in place: check the rights of its parent folder")
    if replaced is not None:
        storage.remove(replaced)


def absolute(folder: str) -> str:
    """Return a local path from the root: Spark's workers may have another working directory."""
    return folder.rstrip("/") if ":/" in folder else os.path.abspath(folder)
