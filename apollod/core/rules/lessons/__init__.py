"""Lessons: facts and answers that the model is taught until it knows them in any wording."""
