"""Why does the published curve of tuned prompts fall? Did some of its networks learn next to nothing?

The page *published-curve* shows the answers. `groups` finds the stored trials that differ from a preset in named ways.
`comparisons` compares them with each other and with the published means. `predictions` says what became of what was
predicted before the runs. Nothing here trains.
"""
