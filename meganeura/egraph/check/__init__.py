"""Checks rewrite rules from their own text: matching graphs are generated, and both sides evaluated."""
