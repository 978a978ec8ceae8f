"""Pure codecs shared by all processes: no I/O, no clock, no torch."""
