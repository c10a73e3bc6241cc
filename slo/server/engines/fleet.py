"""The router of a fleet of bundled servers, whose page holds the replicas' figures too."""

from plimsoll.slo.server.canonical import Engine, gauge

ENGINE = Engine(
    "fleet",
    "Plimsoll's fleet",
    ("/metrics",),
    (gauge("server.replicas", "reference_fleet_replicas", state="up"),),
    rank=21,
)
