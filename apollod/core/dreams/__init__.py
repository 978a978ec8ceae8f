"""Dreams: the served model practises what it was told until it needs no telling."""
