from __future__ import annotations

import inspect
import re
import types
from importlib.metadata import version
from pathlib import Path

import pytest

import regnexe
import regnexe.testing

ROOT = Path(__file__).parent.parent


def test_the_changelogs_newest_version_is_the_packages() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## \[(\d[^\]]*)\] - \d{4}-\d{2}-\d{2}$", changelog, re.M)
    assert versions[0] == regnexe.__version__ == version("regnexe")


def test_the_list_of_public_names_is_sorted_and_has_each_name_once() -> None:
    assert sorted(set(regnexe.__all__)) == regnexe.__all__


@pytest.mark.parametrize("name", regnexe.__all__)
def test_each_public_name_resolves_is_documented_and_says_it_comes_from_regnexe(name: str) -> None:
    public = getattr(regnexe, name)
    if isinstance(public, types.UnionType):
        return  # a union of types has neither a docstring nor a module of its own
    assert vars(public)["__doc__"] if isinstance(public, type) else public.__doc__
    assert public.__module__ == "regnexe"


def test_no_public_class_or_function_is_left_out_of_the_list() -> None:
    here = {
        name
        for name, value in vars(regnexe).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    assert here == set(regnexe.__all__)


@pytest.mark.parametrize("name", regnexe.testing.__all__)
def test_each_name_of_the_testing_module_resolves_and_is_documented(name: str) -> None:
    assert inspect.getdoc(getattr(regnexe.testing, name))
