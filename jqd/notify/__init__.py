"""Notices to the administrator: which jobs failed, by mail and web hook (docs/operate/MAIL.md)."""
