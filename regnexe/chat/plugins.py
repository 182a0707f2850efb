"""Loads the plugins that a command line names."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from regnexe.errors import ConfigurationError
from regnexe.listeners import error_text

__all__ = ["load_plugin"]

MANIFEST = "plugin.yaml"

_MISSING = object()
_ENTRY = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


def load_plugin(place: str) -> object:
    """Return the plugin at this place: a folder with a `plugin.yaml`, or `package.module:Class`.

    The folder's `plugin.yaml` names the class in the same form, as `entry`; its module lies in the folder. The
    folder, or the current directory, becomes the last place where Python looks for modules.

    Raises:
        ConfigurationError: it cannot be loaded; the message names the file or the place.
    """
    folder = Path(place)
    if folder.is_dir():
        manifest = (folder / MANIFEST).absolute()
        return _made(_entry_in(manifest), manifest.parent, source=str(manifest))
    if not _ENTRY.fullmatch(place):
        raise ConfigurationError(
            f'plugin {place!r} is neither a folder that exists nor of the form "package.module:Class"'
        )
    return _made(place, Path.cwd(), source=f"plugin {place!r}", inside=False)


def _entry_in(manifest: Path) -> str:
    import yaml  # type: ignore[import-untyped,unused-ignore]

    try:
        read = yaml.safe_load(manifest.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigurationError(f"there is no {MANIFEST} in {manifest.parent}; a plugin folder has one") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigurationError(f"{manifest} cannot be read: {error}") from error
    entry = read.get("entry") if isinstance(read, dict) else None
    if not isinstance(entry, str) or not _ENTRY.fullmatch(entry):
        raise ConfigurationError(f'{manifest} must say entry: "module:Class", got {entry!r}')
    return entry


def _made(entry: str, folder: Path, *, source: str, inside: bool = True) -> object:
    module_name, _, name = entry.partition(":")
    # At the end, so that a file of the plugin never takes the place of another module.
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    with _told(f"{source}: importing {module_name!r} failed"):
        module: Any = importlib.import_module(module_name)
    if inside and not _lies_in(module, folder):
        raise ConfigurationError(
            f"{source}: another module is named {module_name!r} ({getattr(module, '__file__', None) or 'built in'}); "
            "give the plugin's module another name"
        )
    with _told(f"{source}: looking for {name!r} in the module {module_name!r} failed"):
        found = getattr(module, name, _MISSING)
    if found is _MISSING:
        raise ConfigurationError(f"{source}: there is no {name!r} in the module {module_name!r}")
    if not isinstance(found, type):
        return found
    with _told(f"{source}: {name}() failed"):
        return found()


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Tell of what a plugin's own code raises; one that exits would else end the program without a word."""
    try:
        yield
    except (Exception, SystemExit) as error:
        raise ConfigurationError(f"{what}: {error_text(error)}") from error


def _lies_in(module: Any, folder: Path) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and Path(file).resolve().is_relative_to(folder.resolve())
