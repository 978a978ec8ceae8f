"""Models that answer over HTTP: our own engine, and any other OpenAI-compatible endpoint.

Here lives how they are asked (bodies, retries, time limits) and what their answers are taken for. What is asked, when,
and what follows from an answer is not decided here, and nothing here is written to the journal. httpx2 is imported when
the first question is asked, since neither `apollod ctl` nor the start of the daemon should wait for it.
"""
