"""`apollod ctl bootstrap`: existing logs, read and learned once; and what that would be, before anything is read."""
