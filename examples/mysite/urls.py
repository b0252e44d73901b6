"""One page."""

from django.urls import path

from examples.mysite.shop.views import order

urlpatterns = [path("orders/<int:number>", order)]
