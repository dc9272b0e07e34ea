"""The live scheduler: watches pods that name it, decides by a policy, binds."""
