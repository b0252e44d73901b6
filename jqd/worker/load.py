"""Imports the `App` that a command line names as `module:attribute`. Also sets up tracing."""

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from jqd.client.tracing import NoTracing, set_up
from jqd.domain.errors import ConfigError, JqdError
from jqd.domain.log import get_logger
from jqd.domain.lossy_stream import LossyStream
from jqd.domain.suggest import suggestion
from jqd.worker.app import App
from jqd.worker.job import Job

ATTRIBUTE_DEFAULT = "app"
SERVICE = "jqd-worker"  # name in traces, unless OTEL_SERVICE_NAME is set


class AppNotFound(ConfigError):
    """There is no app at the address MODULE:ATTRIBUTE, or it has no job of a given name. The message says what was not
    found."""


def load_app(target: str) -> App:
    """Import `module:attribute` (without an attribute: `app`) and return the App.

    The working directory is searched first, as with `python -m`. Raises AppNotFound, and whatever the module itself
    raises.
    """
    module_name, _, attribute = target.partition(":")
    attribute = attribute or ATTRIBUTE_DEFAULT
    if module_name.endswith(".py") or not all(part.isidentifier() for part in module_name.split(".")):
        raise AppNotFound(
            f"{module_name!r} is no module name. Write MODULE or MODULE:APP, with dots and without .py: shop.jobs:app"
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise  # the module exists, but imports one that does not
        raise AppNotFound(
            f"there is no module {error.name!r}; looked in {here} and the installed packages. "
            "Run the worker from the folder that holds the module, or install it"
        ) from None
    found: object = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            apps = [name for name, value in vars(module).items() if isinstance(value, App)]
            known = f"it has {', '.join(apps)}: write {module_name}:{apps[0]}" if apps else "it has no App at all"
            raise AppNotFound(f"module {module_name} has no {attribute!r}; {known}")
        found = getattr(found, part)
    if not isinstance(found, App):
        raise AppNotFound(f"{module_name}:{attribute} is a {type(found).__name__}, not a jqd.App")
    if not found.jobs:
        raise AppNotFound(f"{module_name}:{attribute} has no jobs; decorate a function with @{attribute}.job")
    return found


def chosen(jobs: Mapping[str, Job[..., Any, Any]], only: Collection[str]) -> dict[str, Job[..., Any, Any]]:
    """Return the jobs whose names are in `only`, or all if it is empty. Raises AppNotFound for an unknown name."""
    for name in only:
        if name not in jobs:
            raise AppNotFound(f"--jobs: the app has no job {name!r}{suggestion(name, list(jobs))}")
    return {name: job for name, job in jobs.items() if not only or name in only}


def import_app(target: str) -> App:
    """Import `module:attribute` (without an attribute: `app`) and return the App. Raises AppNotFound. If the module
    itself raises, print its traceback to stderr, without jqd's own calls above it, and raise ConfigError."""
    try:
        return load_app(target)
    except JqdError:
        raise
    except Exception as error:  # a module may raise anything while it is imported
        trace = traceback.TracebackException.from_exception(error)
        ours = max((number for number, frame in enumerate(trace.stack) if frame.name == load_app.__name__), default=-1)
        theirs = [frame for frame in trace.stack[ours + 1 :] if "importlib" not in frame.filename]
        trace.stack = traceback.StackSummary.from_list(theirs)
        LossyStream(sys.stderr).write("".join(trace.format()))
        module = target.partition(":")[0]
        raise ConfigError(f"the module of {module} cannot be imported; what is wrong with it stands above") from error


def trace_attempts() -> None:
    """Set up tracing, unless the app did. Call it after the app was loaded. If the libraries are missing, only log
    that."""
    try:
        set_up(SERVICE)
    except NoTracing as error:
        get_logger("worker").warning("worker.not_traced", why=str(error))
