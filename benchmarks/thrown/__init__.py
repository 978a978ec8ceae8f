"""Random hostile input for a daemon, drawn by a seed: files, requests, and errors of its disk."""
