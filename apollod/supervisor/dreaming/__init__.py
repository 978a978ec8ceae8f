"""Carries out dreams: asks the models, and watches for an idle engine. The decisions are in `core/rules/dreams`."""
