"""Sections of the status object, by subject: see `wire.status`, whose law holds for all of them."""
