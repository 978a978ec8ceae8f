"""Marks by which the engine tells users' requests from the daemon's own, and names of its counts on /metrics."""

OURS = "x-apollod-daemon"
"""header of whatever the daemon asks of its own engine; any value"""
BEGUN = "apollod_user_requests_begun_total"
ENDED = "apollod_user_requests_ended_total"
NEXT_USER = "/apollod/users/next"
"""GET, `within_s` in its query: answers {"came": true} when a user's request comes, {"came": false} after so long"""
