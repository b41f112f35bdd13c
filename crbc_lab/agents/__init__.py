"""Prompting agents: a chat model plays an environment by its prompts alone, and nothing is trained.

`direct` asks for each step by the environment's own prompt, `react` thinks and acts in one transcript, and `reflexion`
plays a task again with what it wrote about its failures. `crbc agents CONFIG` plays a panel with one of them.
"""
