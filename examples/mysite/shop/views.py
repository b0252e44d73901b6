"""Orders are taken by POST and shown by GET."""

from functools import partial

from django.db import transaction
from django.http import HttpRequest, JsonResponse

from examples.mysite.shop.models import Order
from examples.mysite.shop.tasks import count, thank


def order(request: HttpRequest, number: int) -> JsonResponse:
    """The task is pushed when the order is committed: no worker looks for one that is not there yet, or never is."""
    if request.method == "GET":
        return JsonResponse({"thanked": Order.objects.get(number=number).thanked})
    with transaction.atomic():
        Order.objects.create(number=number)
        transaction.on_commit(partial(thank.enqueue, number))
        if number < 0:
            raise ValueError("no such number")  # the order is rolled back, and nobody is thanked
    result = count.enqueue([number, 1], start=2)
    return JsonResponse({"task": result.id}, status=202)
