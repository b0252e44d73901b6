"""Tests of the pusher's SDK."""
