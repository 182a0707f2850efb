"""What SQLite's errors mean for the user of an agent."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from regnexe.errors import DatabaseBusy, PersistenceError

if TYPE_CHECKING:
    import sqlite3

__all__ = ["check_place", "is_busy", "sqlite_fault"]

# SQLite's primary result codes: https://www.sqlite.org/rescode.html. Numbers, since `sqlite3` is not loaded before use.
_BUSY, _LOCKED = 5, 6
_SENTENCES = {
    3: "may not be written by this user; give it write permission",
    8: "may not be written (the file or its file system is read-only, or this user has no permission)",
    10: "could not be read or written (the disk or its file system failed, or a limit on file sizes was reached)",
    11: "is damaged; restore it from a backup, or save what can be read of it with `sqlite3 FILE .recover`",
    13: "has no room left: the disk is full, or the database has reached its maximum size; free some space",
    14: "cannot be opened; check that it is a file, and that this user may read and write it and its directory",
    26: "is no SQLite database; name another file",
}


def is_busy(error: BaseException) -> bool:
    """Return whether somebody else had the database, or a table, locked."""
    return _code(error) in (_BUSY, _LOCKED)


def sqlite_fault(error: sqlite3.Error, place: str) -> PersistenceError | None:
    """Return what a user is told of an error; None for one that says nothing about the file."""
    code = _code(error)
    if code in (_BUSY, _LOCKED):
        return DatabaseBusy(
            f"the SQLite database {place!r} was locked by another connection or process for longer than writes wait "
            "for it, and what was to be written is not stored. Try again, make the other's transactions shorter, or "
            f"wait longer (?busy_timeout=60 in the URL, or timeout=60 of your own connection, in seconds): {error}",
            place=place,
        )
    if code not in _SENTENCES:
        return None
    return PersistenceError(f"the SQLite database {place!r} {_SENTENCES[code]} ({error})", place=place)


def check_place(path: str) -> None:
    """Check, as far as that goes without opening it, that a database can be at the path.

    SQLite's own word for all of this is "unable to open database file".

    Raises:
        PersistenceError: it cannot; the message says why.
    """
    parent = os.path.dirname(path)
    why = _why_not_in(parent, path)
    if why is None and os.path.isdir(path):
        why = "is a directory; name a file in it"
    if why is None and os.path.lexists(path) and not _may(path, os.R_OK | os.W_OK):
        why = "may not be read and written by this user, or is on a read-only file system"
    if why is not None:
        raise PersistenceError(f"the SQLite database {path!r} {why}", place=path)


def _why_not_in(parent: str, path: str) -> str | None:
    try:
        os.stat(os.path.join(parent, "."))
    except FileNotFoundError:
        return f"cannot be made: the directory {parent!r} does not exist; create it first"
    except NotADirectoryError:
        return f"cannot be made: {parent!r} is not a directory"
    except PermissionError:
        return f"cannot be opened: this user may not enter the directory {parent!r}"
    except (OSError, ValueError) as error:
        return f"cannot be opened: {error}"
    if not _may(parent, os.W_OK | os.X_OK):
        name = os.path.basename(path)
        return f"cannot be opened: this user may not write in {parent!r}, where SQLite keeps {name}-wal beside the file"
    return None


def _may(path: str, mode: int) -> bool:
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)


def _code(error: BaseException) -> int | None:
    # An extended code has the primary one in its lowest byte.
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF
