"""The paper's own tables, and whether their figures can be what they say. docs/paper_tables.md has the findings."""
