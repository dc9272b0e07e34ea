"""What all tests share."""

import signal

from hypothesis import settings

# The first example may compile a kernel, so no deadline per example; a failure prints how to replay it.
settings.register_profile("steersman", deadline=None, print_blob=True)
settings.load_profile("steersman")

# A shell starts what it runs in the background with Ctrl-C ignored, and `nohup` SIGHUP; what they start leaves that so.
for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, usual)
