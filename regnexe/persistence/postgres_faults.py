"""What PostgreSQL's errors mean for the user of an agent, told without a password."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from regnexe.errors import DatabaseBusy, DatabaseUnavailable, PersistenceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["is_passing", "opening_fault", "place_from", "place_of", "postgres_fault", "secrets_in", "without"]

_ANY = "the PostgreSQL database"
_SECRET = ("password", "sslpassword", "scram_client_key", "scram_server_key", "oauth_client_secret")
# https://www.postgresql.org/docs/current/errcodes-appendix.html: connections that fail or are ended from outside
# (a restart, an administrator, a timeout of idle ones) ...
_LOST = ("08", "57P01", "57P02", "57P03", "57P05", "25P03")
# ... and transactions that met another one.
_MET = ("40001", "40P01")
_SENTENCES = {
    "42501": "does not let this user do that; grant it the right to read and write the tables, and the right to create "
    "in the schema for the first start of a new version (or start it once with a user who may)",
    "53100": "has no room left on its disk; free some space",
    "25006": "is read-only, as a standby is; name the primary",
    "57014": "stopped a statement that took too long (statement_timeout)",
}
# What a server says when it lets nobody in has no code that reaches a client.
_REFUSALS = ("authentication failed", "no password supplied", "pg_hba.conf", 'role "', "not permitted to log in")


def is_passing(error: BaseException) -> bool:
    """Return whether a connection was lost, or transactions met, so that the same may work the next time."""
    import psycopg
    from psycopg_pool import PoolClosed, PoolTimeout, TooManyRequests

    if not isinstance(error, psycopg.Error) or isinstance(error, PoolClosed | PoolTimeout | TooManyRequests):
        return False
    if error.sqlstate is None:
        # "the connection is closed", "server closed the connection unexpectedly" and the like.
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return error.sqlstate.startswith((*_LOST, *_MET))


def postgres_fault(error: BaseException, place: str) -> PersistenceError | None:
    """Return what a user is told of an error; None for one that says nothing about the database."""
    import psycopg
    from psycopg_pool import PoolTimeout

    if not isinstance(error, psycopg.Error):
        return None
    reason = " ".join(str(error).split())
    if isinstance(error, PoolTimeout):
        return DatabaseUnavailable(
            f"{place} gave no connection in time: it cannot be reached, or all connections of the pool are in use "
            f"(?pool_size=20 in the URL makes it larger): {reason}",
            place=place,
        )
    state = error.sqlstate
    if state is not None and state.startswith((*_MET, "55P03")):
        return DatabaseBusy(
            f"{place} refused a write that met others again and again, and what was to be written is not stored; "
            f"try again: {reason}",
            place=place,
        )
    if is_passing(error):
        return DatabaseUnavailable(
            f"the connection to {place} was lost again and again; check that the server runs: {reason}", place=place
        )
    if state in _SENTENCES:
        return PersistenceError(f"{place} {_SENTENCES[state]}: {reason}", place=place)
    return None


def opening_fault(error: BaseException, place: str, secrets: Iterable[str]) -> PersistenceError:
    """Return what a user is told of a connection that could not be made."""
    reason = without(secrets, " ".join(str(error).split()))
    if any(said in reason for said in _REFUSALS):
        return PersistenceError(
            f"{place} does not let this user in; check the user name and the password (with @ as %40, : as %3A and "
            f"/ as %2F), and the server's pg_hba.conf: {reason}",
            place=place,
        )
    if 'database "' in reason and "does not exist" in reason:
        return PersistenceError(f"{place} does not exist on this server; create it (createdb): {reason}", place=place)
    return DatabaseUnavailable(
        f"{place} cannot be reached; check the host and the port, and that the server runs and takes connections: "
        f"{reason}",
        place=place,
    )


def place_from(parameters: Mapping[str, Any]) -> str:
    """Return how a database is named in messages."""
    user = f"{parameters['user']}@" if parameters.get("user") else ""
    host = parameters.get("host") or parameters.get("hostaddr") or "localhost"
    port = f":{parameters['port']}" if parameters.get("port") else ""
    return f"postgresql://{user}{host}{port}/{parameters.get('dbname') or ''}"


def place_of(connection: object) -> str:
    """Return how the database of a user's own connection or pool is named in messages."""
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    conninfo = getattr(connection, "conninfo", None)
    if not isinstance(conninfo, str):
        return _ANY
    try:
        return place_from(conninfo_to_dict(conninfo))
    except ProgrammingError:
        return _ANY


def secrets_in(parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what must be in no message."""
    return tuple(str(parameters[name]) for name in _SECRET if parameters.get(name))


def without(secrets: Iterable[str], text: str) -> str:
    """Return the text with `***` in place of each secret."""
    for secret in secrets:
        text = text.replace(secret, "***")
    return text
