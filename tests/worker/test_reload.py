"""Source files that change."""

import os
import threading
from pathlib import Path

from jqd.worker.reload import FILES_MAX, Watch, stamps


def test_only_sources_of_ones_own_are_looked_at(tmp_path: Path) -> None:
    for name in (
        "a.py",
        "pack/b.py",
        "pack/data.txt",
        ".git/c.py",
        "env/pyvenv.cfg",
        "env/lib/d.py",
        "node_modules/e.py",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text("1")
    assert set(stamps(tmp_path)) == {"a.py", "pack/b.py"}
    assert stamps(tmp_path / "nowhere") == {}
    assert FILES_MAX >= 1_000


def test_a_change_is_told_when_it_is_over(tmp_path: Path) -> None:
    (tmp_path / "old.py").write_text("1")
    (tmp_path / "gone.py").write_text("1")
    watch, told = Watch(tmp_path, look_s=0.01), []
    thread = threading.Thread(target=lambda: told.append(watch.wait()))
    (tmp_path / "old.py").write_text("22")
    (tmp_path / "gone.py").unlink()
    (tmp_path / "new.py").write_text("1")
    thread.start()
    thread.join(timeout=30)
    assert told == [["gone.py", "new.py", "old.py"]]
    os.utime(tmp_path / "new.py", (1, 1))
    assert watch.wait() == ["new.py"]
