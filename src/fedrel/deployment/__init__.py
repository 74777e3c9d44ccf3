"""A federation between real institutions: keys, published artefacts, the site's policy, and Flower's programs."""
