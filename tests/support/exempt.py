"""Which functions of the library need no case of bad input, and why: parts, results, and what others look at first."""

INNER_MODULES = {
    "__main__": "the command line: test_command_line.py and test_bad_files.py",
    "options": "likewise",
    "validation": "the checks themselves",
    "inference.compiled": "compiled loops: they get only what `messages` and `hmm` have looked at",
    "models.sampling": "likewise",
    "models.rows": "the arithmetic of `HMM.from_rows` and `to_rows`, which are the doors",
    "models.peers": "likewise, of `HMM.from_hmmlearn` and its like",
    "inference.forward_backward": "likewise; `messages.aggregated_messages` is the door",
    "theory.ranks": "columns of models that `assumptions` has looked at",
    "evidence.enumeration": "the witness: it gets the tables of models that `hmm` has looked at",
    "evidence.finite_field.field": "integers modulo a prime that its own callers draw; `identities.confirm` is the door",
    "evidence.finite_field.vanilla": "likewise",
    "evidence.finite_field.memory": "likewise",
    "evidence.zero_patterns.supports": "bit masks that `patterns` makes; `patterns.decide` is the door",
    "evidence.random_models": "each takes a seed that the ledger draws; `ledger.run` is the door",
    "training.readers": "test_readers.py has a table of its own: each needs a network of another kind",
    "training.adapters": "test_adapters.py likewise; `tuning` looks at the rest",
    "experiments.parts": "test_parts.py has what is refused",
    "experiments.presets": "data",
    "experiments.fields": "the checks themselves; `TrialSpec` and `load_result` are the doors",
    "experiments.beyond": "they get the stages that a trial has made; `run_trial` and `measure` are the doors",
    "experiments.measurements": "they get the stages that a trial has made; `run_trial` and `measure` are the doors",
    "experiments.spoken": "likewise",
    "experiments.results": "test_damaged_results.py: `load_result` and `save_result` are the doors",
    "experiments.provenance": "gets results that `load_result` has read",
}
INNER = {
    "backend": "sixteen_bits name fresh as_name shares side_by_side flushing",  # get what `pick` gives
    "evidence.finite_field.identities": "joint_degree table_degree quotient_degree memory_degree attention_degree",
    "evidence.ledger": "where",
    "experiments.cluster": "connect work slots",  # what driver and workers tell each other
    "experiments.local": "pace store_safely merge whole what_is_kept",  # what a run does with its own results
    "experiments.specs": "added field_type",  # what a field is
    "experiments.store": "as_store as_folders kept",
    "experiments.trials": "network_key on_request",  # what a trial asks of its own spec and device
    "experiments.summaries": "size gain as_results means Share Share.__call__",  # read one field
    "files": "write_whole writable_folder parse_json",  # get what `store`, `ledger` and sweeps have made, or read
    "notebook.pages": "Equation",  # data
    "models.appendix_e": "softmax_of_uniform mixed_permutations",  # parts of models
    "models.chains": "chain_period primitive reachable eliminated",
    "models.families": "as_share sparse_columns on_a_grid",  # likewise
    "models.hmm": "recast unlift",
    "notebook.drawings": "Drawing drawing label named ring circle frame token box arrow strip key chain setting tuners",
    "notebook.live": "run_live measured",  # `run_trial`, `gather` and `panel_specs` look at what they give on
    "notebook.tables": "within at_size by_size one_digit difference agree digits as_set recovered",  # read a result
    "notebook.figure_3": "draw_line",
    "notebook.figures": "legend_below done ink_on_shade",
    "theory.assumptions": "as_mu as_cell as_recoverable recoverable_states independence",  # checks, or after them
    "theory.heads": "unit unless_within LinearHead.reading",  # of models that theorems have looked at
    "training.bert": "as_network gathered run_layer logits_at mask_some",  # parts of a step of training
    "training.checkpoints": "digest seal previous broken as_path kept",
    "training.muon": "orthogonal Muon Muon.step",
    "training.pretraining": "corpus visits hide optimisers rate_at Gradients Gradients.__call__ Gradients.compute "
    "Gradients.capture Run Run.batch Run.save Run.resume",  # parts of `pretrain`
    "training.tuning": "as_prompt fit to_tokens",
}
"""Parts that a reader does not call: they get what the public functions have looked at."""
AT_ROOT = {
    "FromTransformers": "test_readers.py has what is refused",
    "tune": "test_adapters.py likewise; `tune_prompt` looks at the rest",
    "Parts": "test_parts.py likewise",
}
"""Names at the root of the library that are of inner modules."""
RESULTS = [
    "Probe",
    "Report",
    "Verdict",
    "Report.require",
    "IndependenceReport",
    "RegularityReport",
    "EssentialReport",
    "RecoveryReport",
    "StationarityReport",
    "AssumptionError",
    "Sample",
    "Recovery",
    "Impossible",
    "Undecided",
    "Sentences",
    "Task",
    "Tuned",
    "TunedAttention",
    "Certificate",
    "Readout",
    "Built",
    "Built.judge",
    "Rung",
    "Trial",
    "Trial.measure",
    "TrialResult",
    "LabelRule",
    "Store",
    "Outcome",
    "Claim",
    "Interval",
    "Moving",
    "Tally",
    "Entry",
    "Statement",
    "Identity",
    "Confirmation",
    "Pattern",
    "Decision",
    "ParameterError",
    "CheckpointError",
    "TimeUp",
]
"""What the library makes and a reader is given."""
