"""Learning that lasts: what is taught is known in other words, and what was known before stays known."""
