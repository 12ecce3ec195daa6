"""hmmlib: the library behind the executable companion to Wei, Xie and Ma (2021)."""
