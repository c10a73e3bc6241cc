"""What most servers say of their own process, whatever they serve."""

from plimsoll.slo.server.canonical import Engine, counter, gauge

ENGINE = Engine(
    "process",
    "the server's process",
    (),
    (
        gauge("host.rss", "process_resident_memory_bytes"),
        counter("host.cpu", "process_cpu_seconds_total"),
    ),
    rank=90,
)
