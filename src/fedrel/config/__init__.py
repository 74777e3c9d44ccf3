"""A config: one schema, one loader, and the presets."""
