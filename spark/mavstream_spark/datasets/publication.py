"""Atomic publication: a finished folder becomes a dataset in one step, where nothing else is in the way."""

from __future__ import annotations

import os
import secrets

from mavstream_protocol.manifest import MANIFEST, InvalidDataset
from mavstream_spark.datasets.storage import Storage


def check_free(storage: Storage, folder: str, overwrite: bool) -> None:
    """Raise InvalidDataset if a folder must not be written to."""
    if not storage.exists(folder) or not storage.names(folder):
        return
    if not storage.exists(f"{folder}/{MANIFEST}"):
        raise InvalidDataset(f"'{folder}' exists and is not a dataset: give a new folder as --out")
    if not overwrite:
        raise InvalidDataset(f"'{folder}' holds a dataset: give a new folder, or --overwrite to replace it")


def publish(storage: Storage, unfinished: str, folder: str, overwrite: bool) -> None:
    """Move an unfinished folder to its final path; raises InvalidDataset if that was taken meanwhile."""
    replaced = None
    if storage.exists(folder):
        # Checked again: something may have been written while the job ran.
        check_free(storage, folder, overwrite)
        replaced = storage.sibling(folder, f".{storage.name(folder)}.{secrets.token_hex(4)}.replaced")
        storage.rename(folder, replaced)
    if not storage.rename(unfinished, folder):
        if replaced is not None:
            storage.rename(replaced, folder)
        raise InvalidDataset(f"'{folder}' could not be published: check the permissions of its parent folder")
    if replaced is not None:
        storage.remove(replaced)


def absolute(folder: str) -> str:
    """Return a local path as an absolute one: Spark's workers may have another working directory."""
    return folder.rstrip("/") if ":/" in folder else os.path.abspath(folder)
