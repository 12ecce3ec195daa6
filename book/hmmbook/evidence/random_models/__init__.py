"""For each statement a check on random models that could fail, and a control that must."""
