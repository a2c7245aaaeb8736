"""PURE: every word about the phase that people read. Command line, doctor, console and alerts only lay them out.

figures has moments, spans and counts; phases the phases, causes and status lines; notices the banner and the alerts;
requests what happens after an operator's request.
"""
