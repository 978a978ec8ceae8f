"""Marks by which the engine distinguishes users' requests from the daemon's own, and names of its counts on
/metrics."""

OURS = "x-apollod-daemon"
"""header of all requests of the daemon to its own engine; any value"""
BEGUN = "apollod_user_requests_begun_total"
ENDED = "apollod_user_requests_ended_total"
NEXT_USER = "/apollod/users/next"
"""GET, `within_s` in its query: answers {"came": true} when a user's request comes, {"came": false} after that time"""
