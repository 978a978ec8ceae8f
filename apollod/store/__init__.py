"""Weights of a model directory on disk: find, compare and update them so that no crash leaves them half written, and
undo updates."""
