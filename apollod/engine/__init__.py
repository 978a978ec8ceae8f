"""Inside vLLM: entry, plugin, loader, recorder, worker extension, HTTP routes.

Started by module name, never imported by the rest. vLLM is used through its official extension points only.
"""
