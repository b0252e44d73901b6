"""The worker: one job, `wordcount.file`, which counts what is in one file. Start it with

jqd worker examples.wordcount.worker
"""

from pathlib import Path

from examples.wordcount.count import Counts, count
from jqd import App, Failed

app = App()


@app.job("wordcount.file", keep_result=True, timeout=60)
def wordcount_file(path: str, /) -> Counts:
    """Count one file. The argument is its path; a job carries the address of big data, not the data."""
    try:
        return count(Path(path))
    except FileNotFoundError:
        # Trying again will not make the file appear, so no retry. Any other error of the disk may pass: it is retried.
        raise Failed(f"there is no file {path}") from None
