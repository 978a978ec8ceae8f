"""What every subject is made of: events, inputs, effects, outcomes. Knows no subject, and nothing of models or
training."""
