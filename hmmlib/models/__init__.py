"""The two generative models of the paper, how texts are drawn from them, and families of random models.

Read the modules in this order:

    hmm                 HMM and MemoryHMM, and what they can do
    appendix_e          the random models of appendix E
    families            random models that satisfy an assumption
    counterexamples     models that break only one hypothesis of a theorem
    sentences           models with words for tokens
    chains              what follows from a transition matrix alone
    sampling, compiled  how texts are drawn
    tensors             copies that a model owns, and whether torch takes a derivative forwards
    rows, peers         models whose tables have rows that sum to 1, and those of hmmlearn and dynamax
"""
