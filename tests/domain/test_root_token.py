"""The daemon's own token: a file that is right or not there, also when the disk was full for a while."""

import json
from pathlib import Path

from jqd.domain.root_token import FILE, RootToken, RootTokenFile, read

ROOT = RootToken("http://127.0.0.1:1", "secret")


def test_it_is_written_for_its_owner_and_goes_with_the_daemon(tmp_path: Path) -> None:
    with RootTokenFile(tmp_path, ROOT) as lies:
        assert (read(tmp_path), (tmp_path / FILE).stat().st_mode & 0o777) == (ROOT, 0o600)
        assert lies.examine() == []
    assert [*tmp_path.iterdir()] == []
    with RootTokenFile(tmp_path, ROOT):
        (tmp_path / FILE).unlink()


def test_where_it_cannot_be_written_that_of_before_goes_and_it_comes_with_the_room(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(json.dumps({"url": "http://127.0.0.1:1", "token": "of an earlier run"}))
    in_its_way = tmp_path / "root.new"
    in_its_way.mkdir()
    lies = RootTokenFile(tmp_path, ROOT)
    (finding,) = lies.examine()
    assert (finding.code, read(tmp_path)) == ("no_root_file", None)
    assert "lets nobody make a token" in str(finding)
    assert lies.examine() == [finding]
    in_its_way.rmdir()
    assert (lies.examine(), read(tmp_path)) == ([], ROOT)
