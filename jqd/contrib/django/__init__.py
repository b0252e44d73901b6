"""Runs Django's tasks (of Django 6, or the package django-tasks) as jobs. In INSTALLED_APPS it adds `jqdworker`.

TASKS = {"default": {"BACKEND": "jqd.contrib.django.backend.JqdBackend", "OPTIONS": {"max_retry": 3}}}
"""
