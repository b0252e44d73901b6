"""As `startproject` makes them, but for what jqd needs: three lines, marked."""

import os
from importlib.util import find_spec

SECRET_KEY = "of an example"  # noqa: S105
DEBUG = False
ALLOWED_HOSTS = ["127.0.0.1"]
ROOT_URLCONF = "examples.mysite.urls"
USE_TZ = True
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ.get("MYSITE_DB", "mysite.db")}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    "examples.mysite.shop",
    "jqd.contrib.django",  # jqd: for `manage.py jqdworker`
]
if not find_spec("django.tasks"):
    INSTALLED_APPS.append("django_tasks")  # before Django 6

# jqd: where tasks go, by JQD_URL, and what holds for all of them
TASKS = {
    "default": {
        "BACKEND": "jqd.contrib.django.backend.JqdBackend",
        "QUEUES": ["default", "slow"],
        "OPTIONS": {"max_retry": 2, "timeout": "1m", "backoff": "100ms"},
    }
}
