"""One target under atheris, which sees what code each input reaches: `python -m tests.fuzz.cover NAME SECONDS CORPUS`.

It ends by itself; an input that brings a target to anything but its own refusals, or takes too long or too much memory,
is written beside the corpus and told.
"""

import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["jqd"]):
    from tests.fuzz.targets import TARGETS

INPUT_BYTES_MAX = 4_096
RSS_MB_MAX = 512
INPUT_S_MAX = 2  # for one input: milliseconds, many times over, under instrumentation


def main() -> None:
    """Never returns: libFuzzer ends the process."""
    name, seconds, corpus = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(TARGETS[name].seeds):
        (corpus / f"seed-{number}").write_bytes(seed)
    limits = [f"-max_total_time={seconds}", f"-max_len={INPUT_BYTES_MAX}", f"-rss_limit_mb={RSS_MB_MAX}"]
    quiet = [f"-timeout={INPUT_S_MAX}", "-verbosity=0", "-print_final_stats=1", f"-artifact_prefix={corpus}/bad-"]
    atheris.Setup([sys.argv[0], str(corpus), *limits, *quiet], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
