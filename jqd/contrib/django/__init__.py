"""Tasks of Django (6, or before it of the package django-tasks) as jobs: in INSTALLED_APPS for `manage.py jqdworker`.

TASKS = {"default": {"BACKEND": "jqd.contrib.django.backend.JqdBackend", "OPTIONS": {"max_retry": 3}}}
"""
