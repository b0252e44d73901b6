"""Runs Django's tasks (of Django 6, or the package django-tasks) as jobs. As an app in INSTALLED_APPS it adds the
command `jqdworker`.

TASKS = {"default": {"BACKEND": "jqd.contrib.django.backend.JqdBackend", "OPTIONS": {"max_retry": 3}}}
"""
