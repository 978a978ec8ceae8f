"""The operating system: clock, log, processes, files, locks, service manager."""
