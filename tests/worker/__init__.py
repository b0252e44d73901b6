"""Tests of the worker's SDK."""
