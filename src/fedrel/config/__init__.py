"""A config: one schema, one check, one loader, and classes that come from outside."""
