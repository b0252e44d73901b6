"""Runs handlers in Python: reads requests from one descriptor, and answers on another. Standard library only.

    {"before": code}                      once: the handler's `before` runs
    {"begin": code, "body": code, "end": code, "called": name}   a batch of jobs of the handler `name` begins. The code
                                          is its `beforeEach`, which runs now, its body and its `afterEach`
    {"job": {…}}                          one job: the body is called with its argument
    {"ended": name}                       the batch ends: `afterEach` runs

Each request has a number, "at", and gets one answer, which begins with it: 7 {"status": 200, "result": …} or
7 {"status": 1xx, 4xx or 5xx, "message": …, "retry_after": …}. A field "broken" says that code
does not compile, and nothing has run. What code prints goes to descriptors 1 and 2, and so cannot forge an answer.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import linecache
import os
import sys
import traceback
from collections.abc import Callable, Iterable
from types import CodeType
from typing import Any


class Failed(Exception):
    """Code raises this if its job can never succeed, so that it is not retried."""


class Retry(Exception):
    """Code raises this if its job could not be done now; the job is tried again after `after` seconds."""

    def __init__(self, message: str = "", after: float | None = None) -> None:
        super().__init__(message)
        self.after = None if after is None else float(after)


class Broken(Exception):
    """Raised when code does not compile; the cause says why."""


class Job:
    """What code sees of its job, besides the argument."""

    def __init__(self, facts: dict[str, Any]) -> None:
        self.__dict__.update(facts)


class Context:
    def __init__(self) -> None:
        self.space: dict[str, Any] = {"__name__": "__jqd__", "Failed": Failed, "Retry": Retry}
        self.functions: dict[tuple[str, str], Callable[..., Any]] = {}
        self.run: Callable[..., Any] = print
        self.texts: dict[tuple[str, str], CodeType] = {}
        self.after: CodeType | None = None

    def answer(self, request: dict[str, Any]) -> Any:
        if "job" in request:
            return self.job(request["job"])
        if "before" in request:
            self.execute(self.compiled(request["before"], "before"))
        elif "begin" in request:
            try:
                self.run = self.function(request["body"], request["called"])
                before = self.compiled(request["begin"], f"beforeEach of {request['called']}")
                self.after = self.compiled(request["end"], f"afterEach of {request['called']}")
            except Exception as error:  # SyntaxError, and what else the compiler finds wrong with a text
                raise Broken from error
            self.execute(before)
        else:
            self.execute(self.after)
        return None

    def execute(self, code: CodeType | None) -> None:
        if code is not None:
            exec(code, self.space)  # noqa: S102 - that is what this is for

    def compiled(self, text: str, called: str) -> CodeType | None:
        if not text:
            return None
        if (called, text) not in self.texts:
            self.texts[called, text] = compile(text, shown(text, called), "exec")
        return self.texts[called, text]

    def function(self, text: str, called: str) -> Callable[..., Any]:
        """Compile the body as a function, so that it may `return` and its names are local. Returns the function."""
        if (called, text) not in self.functions:
            module = ast.parse("def __jqd_body__(argument, payload, job):\n    pass", called)
            (made,) = module.body
            assert isinstance(made, ast.FunctionDef)
            made.body = ast.parse(text, shown(text, called)).body or made.body
            names: dict[str, Any] = {}
            exec(compile(module, f"<{called}>", "exec"), self.space, names)  # noqa: S102
            self.functions[called, text] = names["__jqd_body__"]
        return self.functions[called, text]

    def job(self, facts: dict[str, Any]) -> Any:
        argument = facts.pop("argument")
        payload = argument if isinstance(argument, str) else json.dumps(argument, ensure_ascii=False)
        return self.run(argument, payload, Job(facts))


def shown(text: str, called: str) -> str:
    """Register a text under a file name, so that tracebacks show its lines. Returns that name."""
    name = f"<{called}>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    return name


def failure(error: BaseException) -> dict[str, Any]:
    if isinstance(error, Broken) and error.__cause__ is not None:
        return failure(error.__cause__) | {"broken": True}
    kinds = traceback.TracebackException.from_exception(error)
    frames = [one for one in kinds.stack if one.filename != __file__]
    kinds.stack = traceback.StackSummary.from_list(frames)
    fields: dict[str, Any] = {
        "status": 500,
        "message": plain(kinds.format()),
        "error": plain(kinds.format_exception_only()),
    }
    if isinstance(error, Failed):
        fields.update(status=400, message=plain([str(error)]) or "Failed")
    elif isinstance(error, Retry):
        fields.update(status=100, message=plain([str(error)]) or "Retry", retry_after=error.after)
    elif isinstance(error, SystemExit):
        fields.update(message=f"the code called exit({error.code!r})")
    return fields


def plain(lines: Iterable[str]) -> str:
    """Join lines to one text, and replace what cannot be encoded as UTF-8."""
    return "".join(lines).strip().encode("utf-8", "backslashreplace").decode()


def answered(context: Context, request: dict[str, Any]) -> str:
    """Carry out a request, and return the answer in JSON. If the code has forked, the child process exits here, and
    does not answer."""
    own = os.getpid()
    try:
        result = context.answer(request)
        if os.getpid() != own:
            sys.exit()
        return json.dumps({"status": 200, "result": result}, ensure_ascii=False, allow_nan=False)
    except BaseException as error:  # whatever the code raises ends its job, and not the context
        if os.getpid() != own:
            raise
        is_well = isinstance(error, SystemExit) and error.code in (None, 0)
        return json.dumps({"status": 200} if is_well else failure(error))


def main(jobs: int, answers: int) -> None:
    for fd in (jobs, answers):
        os.set_inheritable(fd, False)
    sys.argv = ["jqd"]
    for stream in (sys.stdout, sys.stderr):
        assert isinstance(stream, io.TextIOWrapper)
        stream.reconfigure(line_buffering=True, errors="backslashreplace")
    context = Context()
    with os.fdopen(jobs, "rb") as incoming, os.fdopen(answers, "wb") as outgoing:
        for line in incoming:
            request = json.loads(line)
            text = answered(context, request)
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(AttributeError, OSError, ValueError):  # the code closed it, or put None there
                    stream.flush()
            outgoing.write(b"%d %b\n" % (request["at"], text.encode("utf-8", "backslashreplace")))
            outgoing.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
