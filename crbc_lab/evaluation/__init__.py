"""Evaluations: the file with a row for each episode, and play without a model."""
