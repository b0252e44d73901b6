"""Orders."""

from django.db import models


class Order(models.Model):
    """What somebody ordered."""

    number = models.IntegerField(unique=True)
    thanked = models.CharField(max_length=100, default="")
