"""`import regnexe` stays light: what only some users need loads when they first need it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = {
    # model SDKs, and LangChain's packages around them
    "anthropic",
    "google.genai",
    "langchain_anthropic",
    "langchain_deepseek",
    "langchain_google_genai",
    "langchain_ollama",
    "langchain_openai",
    "ollama",
    "openai",
    "tiktoken",
    # database drivers, and the savers and stores on them
    "aiosqlite",
    "langgraph.checkpoint.memory",
    "langgraph.checkpoint.postgres",
    "langgraph.checkpoint.redis",
    "langgraph.checkpoint.sqlite",
    "psycopg",
    "redis",
    "sqlite3",
    # the agent machinery: it comes with the first `build()`
    "deepagents",
    "langchain",
    "langgraph.graph",
    "langgraph.pregel",
    "langgraph.prebuilt",
    # the command line, and what prints
    "click",
    "regnexe.cli",
    "regnexe.demo",
    "rich",
    # tests
    "_pytest",
    "hypothesis",
    "pytest",
    "regnexe.models.offline",
    "regnexe.testing",
}


def loaded_by(statement: str) -> set[str]:
    # The modules that a bare interpreter has anyway (site hooks of an editable install, say) do not count.
    program = (
        f"import json, sys; before = set(sys.modules); {statement}; print(json.dumps([*sys.modules.keys() - before]))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    return set(json.loads(ran.stdout))


def test_importing_regnexe_loads_no_model_sdk_no_driver_and_no_agent_machinery() -> None:
    assert loaded_by("import regnexe") & HEAVY == set()


@pytest.mark.parametrize("module", ["regnexe.testing", "regnexe.testing.scripted"])
def test_importing_the_testing_module_loads_no_pytest_and_no_agent_machinery(module: str) -> None:
    assert loaded_by(f"import {module}") & (HEAVY - {"regnexe.testing"}) == set()


def test_a_name_in_the_list_of_heavy_modules_would_be_noticed() -> None:
    assert loaded_by("import regnexe.testing, rich, click") & HEAVY == {"regnexe.testing", "rich", "click"}
