"""Assumptions as predicates, heads, and the theorems as constructions.

Read the modules in this order:

    reports      what a predicate returns: a verdict, and the numbers behind it
    ranks        ranks and spans of columns, and what rounding may change about them
    assumptions  the paper's assumptions as predicates
    heads        the linear head and the attention head, with a tolerance for rounding
    recovery     the parts that the attention heads of Section 4 are made of
    theorems     from a model and a task to the head, or prompt and head, of a theorem
    separation   whether any linear head at all gives some inputs their labels
"""
