"""A worker whose job returns as much as it is asked for."""

from jqd import App

app = App()


@app.job("sdk large", keep_result=True, timeout=60)
def much(size: int, /) -> bytes:
    """Return what has so many bytes as MessagePack."""
    return b"\xff" * (size - 5)
