"""Text work for lessons: making questions from a statement, matching answers, finding wordings that give the answer
away, refusing lessons that cannot be taught. Pure; `core/rules/lessons` decides."""
