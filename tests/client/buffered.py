"""The jobs that tests of buffers push, and how long they wait for its thread."""

import jqd

WAIT_S = 60.0  # on a busy machine

app = jqd.App("http://127.0.0.1:9")


@app.job(keep_result=True)
def echo(n: int) -> int:
    return n
