"""Installs what a queue needs into an environment of its own, when it is not there yet."""

import shutil
import subprocess
import sys
from pathlib import Path

from bench.peers.catalogue import CACHE, NODE, Peer

REQUIREMENTS = Path(__file__).parent / "requirements"
STAMP = ".installed"  # what was installed, so that a new pin is noticed
INSTALL_S = 600.0
LINES = 3  # of what an installer wrote last


class NotInstalled(Exception):
    """Why a queue cannot take part."""


def install(peer: Peer) -> None:
    """Return when all that it needs is there."""
    missing = [package for path, package in peer.debian if not Path(path).exists()]
    if missing:
        _run("sh", ".ci/packages", *missing)
    if not peer.environment:
        return
    pins = REQUIREMENTS / (f"{NODE}.json" if peer.environment == NODE else f"{peer.environment}.txt")
    place = CACHE / peer.environment
    stamp = place / STAMP
    if stamp.exists() and stamp.read_text() == pins.read_text():
        return
    shutil.rmtree(place, ignore_errors=True)
    if peer.environment == NODE:
        place.mkdir(parents=True)
        shutil.copy(pins, place / "package.json")
        _run("npm", "install", "--no-audit", "--no-fund", "--prefix", str(place))
    else:
        _run(sys.executable, "-m", "venv", str(place))
        pip = [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run(*pip, "--requirement", str(pins))
    stamp.write_text(pins.read_text())


def _run(*argv: str) -> None:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotInstalled(f"{argv[0]}: {error}") from error
    if done.returncode:
        written = (done.stderr or done.stdout).strip().splitlines()
        raise NotInstalled(f"{' '.join(argv[:4])} … ended with {done.returncode}: {' '.join(written[-LINES:])[:300]}")
