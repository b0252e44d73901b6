"""The jobs, declared once. The applications beside this file push them and run them; `jqd worker` could as well."""

import anyio

import jqd

app = jqd.App(loop="asyncio")


@app.job(keep_result=True, max_retry=2)
def thank(to: str) -> str:
    """A plain function: it runs in a thread of the server."""
    if "@" not in to:
        raise jqd.Failed(f"{to} is no address")
    return f"thanked {to} at attempt {jqd.current().attempt}"


@app.job(keep_result=True, max_retry=2)
async def deliver(number: int) -> str:
    """An async function: under FastAPI it is a task of the server's own loop."""
    await anyio.sleep(0.01)
    if jqd.current().attempt == 1:
        raise jqd.Retry(after="100ms", message="nobody is at home")
    return f"delivered {number}"
