"""Who owns the GPU: the machine, its tick, the gate in front of the work, and what people read about it.

The pure part stands in model, outcomes, plan, decide, policy, lanes and wording: values and functions, the standard
library only. tick performs what plan says and saves what decide says; store and gate are the only ones that write.
"""
