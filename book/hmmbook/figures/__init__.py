"""What the book's notebooks use: parameters, figures, interactive figures, live trials."""
