"""Tests of the rewrite rules: each seen to fire, both sides equal, near-misses refused."""
