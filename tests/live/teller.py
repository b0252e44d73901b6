"""A worker's job that prints and says how far it is, until a file is there."""

import os
import time
from pathlib import Path

import jqd

app = jqd.App()


@app.job(max_retry=1, timeout=60, backoff=0.1)
def tell(gate: str) -> str:
    job = jqd.current()
    for number in range(1_000):
        job.log(f"attempt {job.attempt} line {number}")
        job.progress(number / 1_000, f"at {number}")
        if os.path.exists(f"{gate}.{job.attempt}"):
            break
        time.sleep(0.05)
    job.log(f"attempt {job.attempt} is over")
    if job.attempt == 1:
        raise ValueError("once more")
    return str(Path(gate).name)
