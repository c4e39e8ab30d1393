import signal

from tests.support.properties import register_profiles

register_profiles()

# A shell that runs us in the background has it ignored, and so would every process that we start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
