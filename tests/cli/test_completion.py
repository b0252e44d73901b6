"""What a shell completes."""

import shutil
import subprocess

import pytest

from jqd.cli import run

BASH = """
{script}
complete_of() {{ COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _jqd; echo "${{COMPREPLY[@]}}"; }}
complete_of jqd sta
complete_of jqd journal ver
complete_of jqd retry --al
complete_of jqd completion fi
complete -p jqd
"""


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert run(["completion", shell]) == 0
    return capsys.readouterr().out


def test_bash_completes_commands_options_and_values(capsys: pytest.CaptureFixture[str]) -> None:
    told = subprocess.run(
        ["bash", "--norc", "-s"],
        input=BASH.format(script=script("bash", capsys)),  # Linux takes no argument of more than 128 KiB
        capture_output=True, text=True, timeout=20, check=True,
    )  # fmt: skip
    assert told.stdout.split("\n")[:4] == ["status", "verify", "--all", "fish"]
    assert "-F _jqd jqd" in told.stdout


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_every_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = script(shell, capsys)
    assert [word for word in ("push", "status", "worker", "journal", "--data-dir") if word not in text] == []
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=text, text=True, timeout=20, check=True)
