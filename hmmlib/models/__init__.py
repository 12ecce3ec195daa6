"""The two generative models of the paper, draws from them, and families of random ones.

Read the modules in this order:

    hmm                 HMM and MemoryHMM, and what they can do
    appendix_e          the random models of appendix E
    families            random models that satisfy an assumption
    counterexamples     models that break just one hypothesis
    sentences           models with words for tokens
    chains              what follows from a transition matrix alone
    sampling, compiled  how texts are drawn
    tensors             copies that a model owns, and derivatives that are taken forwards
    rows, peers         models in rows, and those of hmmlearn and dynamax
"""
