"""What may come at a daemon from outside, drawn by a seed: files, requests, and errors of its disk."""
