"""One file a method: the coordinator's half and the site's half side by side."""
