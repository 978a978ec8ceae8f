"""Views of lessons and of the gain by learning."""
