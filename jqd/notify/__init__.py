"""Notices to the administrator about failed jobs, by mail and web hook (docs/operate/MAIL.md)."""
