"""Models that answer over HTTP: our own engine, and any other OpenAI-compatible endpoint.

This package sends requests (bodies, retries, time limits) and parses answers. It does not decide what is asked, when,
or what follows from an answer, and writes nothing to the journal. httpx2 is imported with the first request, so that
neither `apollod ctl` nor the start of the daemon waits for it.
"""
