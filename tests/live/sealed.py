"""The app of test_server_only.py."""

import jqd

app = jqd.App()


@app.job(keep_result=True, server_only=True)
def pay(amount: int) -> int:
    return amount


@app.job
def order() -> None:
    jqd.current().push(pay, 7)
