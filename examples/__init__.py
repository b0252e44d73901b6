"""Programs that show jqd at work; README.md says how to run them."""
