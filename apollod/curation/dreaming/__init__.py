"""Text work for dreams: prompts for the imagination and parsing of its answers, detection of scenarios that give the
behaviour away, sketches, and checks of answers. Pure; `core/rules/dreams` decides."""
