"""A typed client of the service, for programs and for the command line.

    from app.client import connect, every

    with connect("http://planner.example:8080", key="mw_...") as service:
        for job in every(service.list_jobs, "h100-17-nodes"):
            print(job.name, job.tokens_per_s)

Its methods are the operations of the description, by their names, with bodies and answers as models.
"""

from app.client.client import Client, connect, every
from app.client.connection import Refusal, ServiceAway

__all__ = ["Client", "Refusal", "ServiceAway", "connect", "every"]
