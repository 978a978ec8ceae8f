"""The building blocks of every subject: events, inputs, effects, outcomes. Imports no subject, no model and no
training code."""
