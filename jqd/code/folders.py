"""Deletes folders that code has written to. Such a folder may lack permissions, hold links to elsewhere, and have any
depth."""

import os
from pathlib import Path
from secrets import token_hex

from jqd.domain.log import get_logger

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


def remove(home: Path) -> None:
    """Delete a folder with its content. If something cannot be deleted, log that and leave it."""
    try:
        if not home.is_symlink():
            os.chmod(home, 0o700)
        top = os.open(home, FOLDER)
        try:
            _empty(top)
        finally:
            os.close(top)
        os.rmdir(home)
    except FileNotFoundError:
        return  # somebody has deleted it
    except OSError as error:
        get_logger("code").warning("code.folder_left", folder=str(home), error=repr(error)[:200])


def _empty(top: int) -> None:
    """Delete the content of the folder with descriptor `top`. Moves each subfolder up to `top` before emptying it: so,
    at any depth, only two folders are open and no path is long. Raises the first OSError, after deleting all that can
    be deleted."""
    waiting, moved, prefix = _emptied(top, top, ""), 0, f".{token_hex(8)}"  # a prefix that code cannot have used
    wrong: OSError | None = None
    while waiting:
        name = waiting.pop()
        moved += 1
        try:
            os.chmod(name, 0o700, dir_fd=top)
            at = os.open(name, FOLDER, dir_fd=top)
            try:
                waiting += _emptied(at, top, f"{prefix}-{moved}")
            finally:
                os.close(at)
            os.rmdir(name, dir_fd=top)
        except OSError as error:
            wrong = wrong or error
    if wrong is not None:
        raise wrong


def _emptied(at: int, top: int, called: str) -> list[str]:
    """Delete the files in folder `at`, and move its subfolders to `top` under names that begin with `called`. Returns
    these names."""
    folders: list[str] = []
    with os.scandir(at) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in found:
        if not is_folder:
            os.unlink(name, dir_fd=at)
        elif at == top:
            folders.append(name)
        else:
            os.chmod(name, 0o700, dir_fd=at)  # moving it changes its `..`, which needs the right to write
            folders.append(f"{called}-{len(folders)}")
            os.rename(name, folders[-1], src_dir_fd=at, dst_dir_fd=top)
    return folders
