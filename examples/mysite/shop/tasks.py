"""Tasks, as Django has them: nothing here knows of jqd."""

from typing import Any

try:
    from django.tasks import task
except ImportError:  # before Django 6
    from django_tasks import task

from examples.mysite.shop.models import Order


@task(priority=10, takes_context=True)
def thank(context: Any, number: int) -> str:
    """At the first attempt the mail server is busy: it is tried again, as any job is."""
    if context.attempt == 1:
        raise ConnectionError("the mail server is busy")
    order = Order.objects.get(number=number)
    order.thanked = thanked = f"at attempt {context.attempt}"
    order.save()
    return thanked


@task(queue_name="slow")
async def count(numbers: list[int], start: int = 0) -> int:
    """Async functions run, too."""
    return sum(numbers, start)
