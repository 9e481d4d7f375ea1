"""Tests of jobs and the processes that solve them."""
