"""Octavia's worker. It is asked before the API has committed, and looks again after a whole second, which adds up: here at once.

The times are read while the worker is imported, before its configuration is, so they are set as defaults."""
from octavia.common import config  # noqa: F401 (it knows the options)
from oslo_config import cfg

for name, value in {"initial_delay": 0, "backoff": 0, "attempts": 2000}.items():
    cfg.CONF.set_default(f"api_db_commit_retry_{name}", value, group="haproxy_amphora")

from octavia.cmd import octavia_worker

octavia_worker.main()
