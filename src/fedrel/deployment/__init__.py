"""Federations between real institutions: folders of coordinator and sites, rules, records, Flower's programs."""
