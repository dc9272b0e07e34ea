"""The live scheduler: watch the pods that name it, decide by a policy, bind."""
