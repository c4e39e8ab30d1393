"""The table of settings: one line of it is a flag, a variable, a file key and a line of documentation.

`Settings` is that table: each field carries its kind, default and help. The command
line, the readers of environment and file, and `docs/configuration.md` are all made
from it, so a new setting is one new field.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

from headgate.config.kinds import (
    BODY,
    HEADER,
    MODE,
    NAME,
    PREFIX,
    SAN,
    AddressKind,
    Boolean,
    Choice,
    FilePath,
    HttpUrl,
    ListOf,
    NetworkKind,
    Number,
    OriginUrl,
    Peer,
    PeerEntry,
    SettingKind,
    Whole,
)

ENV_PREFIX = "HEADGATE_"
REQUIRED: Any = dataclasses.MISSING

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its name, what it accepts, its default and how it is explained."""

    name: str
    kind: SettingKind
    default: Any
    """REQUIRED when there is none; None when leaving it out means something."""
    help: str
    section: str
    absent: str
    """Meaning of the default None, for people."""

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def env(self) -> str:
        return ENV_PREFIX + self.name.upper()

    @property
    def repeatable(self) -> bool:
        return isinstance(self.kind, ListOf)

    @property
    def default_text(self) -> str:
        if self.default is REQUIRED:
            return "required"
        if self.default in (None, (), ""):
            return self.absent
        if isinstance(self.default, bool):
            return str(self.default).lower()
        return f"{self.default:g}" if isinstance(self.default, float) else str(self.default)


@dataclass(frozen=True, slots=True)
class Row:
    """Annotation of a field of `Settings`: all of its `Setting` but the name and the default, which Python knows."""

    kind: SettingKind
    section: str
    help: str
    absent: str = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of one process: each is there, and was accepted by its kind."""

    rules: Annotated[
        Path,
        Row(
            FilePath("a directory", "DIR"),
            "Serving",
            "Directory of rule files (`*.yaml`, `*.yml`); watched for changes.",
        ),
    ]
    grpc: Annotated[str, Row(AddressKind(), "Serving", "Where gRPC listens.")] = "0.0.0.0:8081"
    http: Annotated[
        str, Row(AddressKind(), "Serving", "Where HTTP listens: /json, health, metrics, the current rules.")
    ] = "0.0.0.0:8080"
    socket_mode: Annotated[
        str,
        Row(
            MODE,
            "Serving",
            "Who may connect to the Unix sockets of `grpc` and `http`, as a file's mode: `0600` is this user alone, "
            "`0660` its group too, which may be a proxy's in another container. See docs/workers.md.",
        ),
    ] = "0600"
    admin: Annotated[
        str | None,
        Row(
            AddressKind(),
            "Serving",
            "Where HTTP for operators listens: /metrics, /rules and /version are then here alone, without a token, "
            "and /json is not; health is on both. See docs/security.md.",
            absent="all of it is on `http`",
        ),
    ] = None
    admin_grpc: Annotated[
        str | None,
        Row(
            AddressKind(),
            "Operators",
            "Where gRPC for operators listens: `headgate.v1.Keys`, behind `headgate key`, and `headgate.v1.Decisions`, "
            "behind `headgate explain` and `headgate tail`. Needs `admin_token_file` or `admin_tls_client_ca`: who "
            "changes a limit is known. Of several workers the first has it. See docs/keys.md.",
            absent="not served",
        ),
    ] = None
    admin_token_file: Annotated[
        Path | None,
        Row(
            FilePath("a text file"),
            "Operators",
            "Tokens of operators, lines `NAME=TOKEN`: they send `authorization: Bearer TOKEN` to `admin_grpc`, and the "
            "name stands in the audit log. Read again when it changes.",
            absent="no token",
        ),
    ] = None
    admin_tls_cert: Annotated[
        Path | None,
        Row(
            FilePath("a PEM file"),
            "Operators",
            "Certificate chain for `admin_grpc`; read again when it changes.",
            absent="no TLS",
        ),
    ] = None
    admin_tls_key: Annotated[
        Path | None, Row(FilePath("a PEM file"), "Operators", "The certificate's private key.", absent="no TLS")
    ] = None
    admin_tls_client_ca: Annotated[
        Path | None,
        Row(
            FilePath("a PEM file"),
            "Operators",
            "Authorities whose operators may connect to `admin_grpc`: they must then present a certificate.",
            absent="no certificate",
        ),
    ] = None
    admin_tls_client_san: Annotated[
        tuple[str, ...],
        Row(
            ListOf(SAN),
            "Operators",
            "A name (SAN) that an operator's certificate must have; any of those given is enough. May be repeated.",
            absent="any certificate of `admin_tls_client_ca`",
        ),
    ] = ()
    transport: Annotated[
        Literal["auto", "native", "grpcio"],
        Row(
            Choice(("auto", "native", "grpcio")),
            "Serving",
            "What serves gRPC. `native` is the fast one; `auto` takes it where it is installed, else `grpcio`. "
            "With TLS, and on addresses that other machines can reach, `native` stands behind a guard.",
        ),
    ] = "auto"
    trusted_network: Annotated[
        tuple[str, ...],
        Row(
            ListOf(NetworkKind()),
            "Serving",
            "A network whose gRPC callers the guard relays unseen, bound only in number. May be repeated; "
            "`0.0.0.0/0` (with `::/0` for IPv6) trusts everybody, and there is no guard without TLS then.",
        ),
    ] = ()
    workers: Annotated[
        int,
        Row(
            Whole(1, 1024),
            "Serving",
            "Processes that serve, each a node of its own, with a supervisor above them. They share the `grpc` port; "
            "of `unix:/path` each has its own, `unix:/path.0` and so on. More than one needs a Redis origin. "
            "See docs/workers.md.",
        ),
    ] = 1
    data_dir: Annotated[
        Path | None,
        Row(
            FilePath("a directory", "DIR"),
            "Serving",
            "Directory for what outlives a restart: the last good rules. Created when missing.",
            absent="nothing is kept",
        ),
    ] = None
    merge_domains: Annotated[bool, Row(Boolean(), "Serving", "Let several rule files define one domain.")] = False
    drain_s: Annotated[
        float,
        Row(
            Number(0, 3600, "SECONDS"),
            "Serving",
            "After SIGTERM or SIGINT: how long to go on answering while health already says not serving, "
            "so that callers leave first.",
        ),
    ] = 5.0

    region: Annotated[str, Row(NAME, "Regions", "The name of this region.")] = "local"
    node_id: Annotated[
        str | None,
        Row(NAME, "Regions", "The name of this node, unique in its region.", absent="host name and a random part"),
    ] = None
    origin: Annotated[
        str,
        Row(
            OriginUrl(),
            "Regions",
            "Where the nodes of a region meet. `memory://` is one process by itself. A URL with a password belongs "
            "into a file (`file:/path`): on the command line others see it. See docs/redis.md.",
        ),
    ] = "memory://"
    redis_prefix: Annotated[
        str | None,
        Row(
            PREFIX,
            "Regions",
            "What begins every key in Redis, the same on all nodes of a region: with different ones, several "
            "installations share a Redis and no counts.",
            absent="`headgate:` and the region",
        ),
    ] = None
    wait_for_origin: Annotated[
        float,
        Row(
            Number(0, 3600, "SECONDS"),
            "Regions",
            "Be not ready until all of the origin has answered once, and end with an error when it has not after this "
            "time, so that a wrong password stops a rollout. 0 is ready at once, by the rules' failure policies.",
        ),
    ] = 0.0
    origin_deadline_ms: Annotated[
        int,
        Row(
            Whole(1, 1000, "MS"),
            "Regions",
            "How long a request may wait for the origin before its rule's failure policy decides.",
        ),
    ] = 5
    breaker_error_rate: Annotated[
        float,
        Row(
            Number(0.0001, 1, "SHARE"),
            "Regions",
            "The share of failed calls to a shard, over a second, at which nobody waits for it any more.",
        ),
    ] = 0.01
    breaker_min_samples: Annotated[
        int, Row(Whole(1, 10_000), "Regions", "Calls in that second below which there is no share to speak of.")
    ] = 20
    breaker_cooldown_s: Annotated[
        float,
        Row(
            Number(0.01, 60, "SECONDS"),
            "Regions",
            "How long a failed shard is left alone before one call tries it; doubled up to four times that.",
        ),
    ] = 0.5
    peer: Annotated[
        tuple[Peer, ...],
        Row(ListOf(PeerEntry()), "Regions", "Another region and where its exchange listens. May be repeated."),
    ] = ()
    exchange: Annotated[
        str, Row(AddressKind(), "Regions", "Where other regions reach this one; listens only when peers are set.")
    ] = "0.0.0.0:8082"
    exchange_interval_s: Annotated[
        float,
        Row(
            Number(0.1, 60, "SECONDS"),
            "Regions",
            "How often this region tells its peers what has changed; what is admitted twice grows with it.",
        ),
    ] = 1.0
    exchange_tls_cert: Annotated[
        Path | None,
        Row(
            FilePath("a PEM file"),
            "Regions",
            "Certificate chain that this region shows its peers, with the region's name as a DNS name (SAN); read "
            "again when it changes. See docs/security.md.",
            absent="no TLS",
        ),
    ] = None
    exchange_tls_key: Annotated[
        Path | None, Row(FilePath("a PEM file"), "Regions", "The certificate's private key.", absent="no TLS")
    ] = None
    exchange_tls_ca: Annotated[
        Path | None,
        Row(FilePath("a PEM file"), "Regions", "Authorities whose certificates peers must show.", absent="no TLS"),
    ] = None
    exchange_token_file: Annotated[
        Path | None,
        Row(
            FilePath("a text file"),
            "Regions",
            "One token that all regions share, or lines `REGION=TOKEN`, one for each: a peer then speaks only for the "
            "region whose token it sends. Read again when it changes.",
            absent="no token",
        ),
    ] = None
    exchange_insecure: Annotated[
        bool,
        Row(
            Boolean(),
            "Regions",
            "Exchange counts over a network with neither certificates nor tokens: whoever reaches `exchange` can then "
            "speak for any region. Without it such a start is refused.",
        ),
    ] = False

    exchange_inside: Annotated[
        bool,
        Row(
            Boolean(),
            "Regions",
            "Speak to other regions from inside `headgate serve`. `false` where `headgate exchange` does it beside "
            "the nodes; `peer` is needed all the same, because limits depend on how many regions there are.",
        ),
    ] = True

    response_headers: Annotated[
        bool, Row(Boolean(), "Answers", "Add the headers below to answers, for Envoy to hand to its caller.")
    ] = False
    header_limit: Annotated[str, Row(HEADER, "Answers", "Header with the limit.")] = "RateLimit-Limit"
    header_remaining: Annotated[str, Row(HEADER, "Answers", "Header with what is left.")] = "RateLimit-Remaining"
    header_reset: Annotated[str, Row(HEADER, "Answers", "Header with the seconds until the limit resets.")] = (
        "RateLimit-Reset"
    )
    header_retry_after: Annotated[
        str,
        Row(
            HEADER,
            "Answers",
            "Header with the seconds to wait, on denials only; up to 20% longer than needed, "
            "so that clients spread out.",
        ),
    ] = "Retry-After"
    denied_body: Annotated[str, Row(BODY, "Answers", "Body for Envoy to send with a denial.", absent="Envoy's own")] = (
        ""
    )
    shadow_mode: Annotated[bool, Row(Boolean(), "Answers", "Decide and count everything, deny nothing.")] = False
    dynamic_metadata: Annotated[
        bool, Row(Boolean(), "Answers", "Return a matched rule's `metadata` as dynamic metadata.")
    ] = False

    reason_header: Annotated[
        str | None,
        Row(
            HEADER,
            "Answers",
            "Header that says why: domain, rule, rule set version, path and decision id, as words with `=`. Envoy adds "
            "it to what its caller gets. See docs/explain.md.",
            absent="no such header",
        ),
    ] = None
    reason_metadata: Annotated[
        bool,
        Row(
            Boolean(),
            "Answers",
            "Say the same in dynamic metadata, under `headgate`: for Envoy's access log, and for nobody else.",
        ),
    ] = False
    overdraft: Annotated[
        bool,
        Row(
            Boolean(),
            "Answers",
            "Rules that don't say `overdraft` themselves charge every cost, beyond the limit if need be, as "
            "envoyproxy/ratelimit does. See docs/tokens.md.",
        ),
    ] = False
    refund: Annotated[
        bool,
        Row(
            Boolean(),
            "Answers",
            "Rules that don't say `refund` themselves let what was charged be given back (`is_negative_hits`), as "
            "envoyproxy/ratelimit does. See docs/tokens.md.",
        ),
    ] = False

    request_limits: Annotated[
        Literal["allow", "lower", "refuse"],
        Row(
            Choice(("allow", "lower", "refuse")),
            "Answers",
            "Limits that come with a request (`limit` in a descriptor): `allow` takes them instead of the rule's, "
            "`lower` lets them only take away, `refuse` answers INVALID_ARGUMENT. A rules file may say otherwise for "
            "its domain. See docs/rules.md.",
        ),
    ] = "allow"

    tls_cert: Annotated[
        Path | None,
        Row(
            FilePath("a PEM file"),
            "Callers",
            "Certificate chain for gRPC; read again when it changes.",
            absent="no TLS",
        ),
    ] = None
    tls_key: Annotated[
        Path | None, Row(FilePath("a PEM file"), "Callers", "The certificate's private key.", absent="no TLS")
    ] = None
    tls_client_ca: Annotated[
        Path | None,
        Row(
            FilePath("a PEM file"),
            "Callers",
            "Authorities whose clients may connect: clients must then present a certificate.",
            absent="any client",
        ),
    ] = None

    tls_client_san: Annotated[
        tuple[str, ...],
        Row(
            ListOf(SAN),
            "Callers",
            "A name (SAN) that a client's certificate must have; any of those given is enough. May be repeated. "
            "Others get PERMISSION_DENIED; health checks are answered all the same.",
            absent="any certificate of `tls_client_ca`",
        ),
    ] = ()
    token_file: Annotated[
        Path | None,
        Row(
            FilePath("a text file"),
            "Callers",
            "Bearer tokens, one per line, of which callers must send one (`authorization: Bearer TOKEN`), over gRPC "
            "and for /json and /rules; read again when it changes. Health checks need none.",
            absent="no token",
        ),
    ] = None

    max_message_bytes: Annotated[
        int, Row(Whole(1024, 16 * _MIB, "BYTES"), "Bounds", "The largest request, gRPC or HTTP.")
    ] = 64 * 1024
    max_pending_calls: Annotated[
        int, Row(Whole(1, 1_000_000), "Bounds", "Calls waiting for an answer; more are refused as UNAVAILABLE.")
    ] = 10_000
    max_pending_bytes: Annotated[
        int, Row(Whole(_MIB, 64 * 1024 * _MIB, "BYTES"), "Bounds", "The same, by their size.")
    ] = 64 * _MIB
    max_concurrent_streams: Annotated[
        int, Row(Whole(1, 100_000), "Bounds", "Calls under way on one gRPC connection.")
    ] = 100
    max_connections: Annotated[
        int,
        Row(
            Whole(1, 1_000_000),
            "Bounds",
            "gRPC connections, through the guard; less where the process may not open three files for each.",
        ),
    ] = 1_000
    max_connections_per_address: Annotated[
        int, Row(Whole(1, 1_000_000), "Bounds", "The same, from one address outside of the trusted networks.")
    ] = 200
    handshake_timeout_s: Annotated[
        float,
        Row(
            Number(0.1, 3600, "SECONDS"),
            "Bounds",
            "From the connection to the first bytes of HTTP/2, TLS included; through the guard, as all that follow.",
        ),
    ] = 10.0
    message_timeout_s: Annotated[
        float,
        Row(
            Number(0.1, 3600, "SECONDS"),
            "Bounds",
            "How long a gRPC call may take to arrive, and how long a caller may leave its answers unread.",
        ),
    ] = 10.0
    idle_timeout_s: Annotated[
        float,
        Row(
            Number(0.1, 2_592_000, "SECONDS"),
            "Bounds",
            "After so long without a call a gRPC connection is closed, in good order.",
        ),
    ] = 300.0
    max_connection_age_s: Annotated[
        float,
        Row(
            Number(0.1, 2_592_000, "SECONDS"),
            "Bounds",
            "After so long, give or take a tenth, a gRPC caller is asked to connect anew; no call fails by it.",
        ),
    ] = 3_600.0
    max_unfinished_bytes: Annotated[
        int,
        Row(
            Whole(_MIB, 64 * 1024 * _MIB, "BYTES"),
            "Bounds",
            "gRPC calls that have not arrived whole; one connection may hold a sixteenth of it, or two messages.",
        ),
    ] = 64 * _MIB
    max_cells: Annotated[
        int,
        Row(
            Whole(1000, 1_000_000_000),
            "Bounds",
            "Counters kept in memory. Beyond that expired ones go first, then those not used for longest.",
        ),
    ] = 1_000_000
    match_cache_entries: Annotated[
        int, Row(Whole(1, 100_000_000), "Bounds", "Requests whose matching rules are remembered.")
    ] = 16_384
    match_cache_bytes: Annotated[
        int, Row(Whole(1, 2**40), "Bounds", "What they may take in memory together, in bytes.")
    ] = 32 * _MIB
    max_descriptors: Annotated[
        int, Row(Whole(1, 32), "Bounds", "Descriptors of one request; with more it is INVALID_ARGUMENT.")
    ] = 32
    max_entries: Annotated[
        int, Row(Whole(1, 256), "Bounds", "Entries of one descriptor; with more it is INVALID_ARGUMENT.")
    ] = 32

    decision_log: Annotated[
        bool,
        Row(
            Boolean(),
            "Decision log",
            "Keep the decision log in `data_dir`, where there is one: every denial, every degraded decision, some "
            "allowances, and what happened to this node. `headgate explain` reads it. See docs/explain.md.",
        ),
    ] = True
    decision_log_stdout: Annotated[
        bool, Row(Boolean(), "Decision log", "Write the decision log to stdout too, as JSON lines, to be shipped.")
    ] = False
    decision_log_otlp: Annotated[
        bool,
        Row(
            Boolean(),
            "Decision log",
            "Send the decision log to `otlp_endpoint` too, as OpenTelemetry log records (`/v1/logs`). What the "
            "collector does not take is dropped and counted.",
        ),
    ] = False
    decision_log_allowances: Annotated[
        int,
        Row(
            Whole(0, 1_000_000_000),
            "Decision log",
            "Of so many allowances one is logged: 1 logs all, 0 none. Denials and degraded decisions are all logged.",
        ),
    ] = 1_000
    decision_log_values: Annotated[
        bool,
        Row(
            Boolean(),
            "Decision log",
            "Log descriptors as they are, and not their hashes alone: they may name people. `headgate rules replay` "
            "needs them.",
        ),
    ] = False
    decision_log_bytes: Annotated[
        int,
        Row(
            Whole(64 * _MIB, 2**50, "BYTES"),
            "Decision log",
            "What the decision log may take of the disk, for all processes that share `data_dir`: the oldest goes.",
        ),
    ] = 1024 * _MIB
    decision_log_hours: Annotated[
        int, Row(Whole(1, 876_000, "HOURS"), "Decision log", "For how long it is kept at most.")
    ] = 168

    log_level: Annotated[
        str,
        Row(
            Choice(("debug", "info", "warning", "error")),
            "Logs",
            "The least important level to log, to stderr. SIGUSR1 switches to `debug`, and back, at any time.",
        ),
    ] = "info"
    log_format: Annotated[
        str,
        Row(
            Choice(("auto", "json", "console")),
            "Logs",
            "One JSON object per line, or lines for people; `auto` is `console` on a terminal and `json` elsewhere.",
        ),
    ] = "auto"

    near_limit_ratio: Annotated[
        float,
        Row(Number(0, 1), "Metrics", "From which share of its limit on an admission is counted as near the limit."),
    ] = 0.8
    ratelimit_metrics: Annotated[
        bool,
        Row(
            Boolean(),
            "Metrics",
            "Show the counts of each rule under the names of envoyproxy/ratelimit too "
            "(`ratelimit_service_rate_limit_over_limit` and so on), for dashboards made for it.",
        ),
    ] = False
    traces: Annotated[
        bool,
        Row(
            Boolean(),
            "Metrics",
            "Send spans of decisions to `otlp_endpoint`: of those whose callers sample them (`traceparent`), of "
            "`trace_share` of the others, and of all that fail. Decisions are then made on the loop alone, which costs "
            "some CPU.",
        ),
    ] = False
    trace_share: Annotated[
        float,
        Row(Number(0, 1), "Metrics", "Of decisions whose callers say nothing of traces, the share that is traced."),
    ] = 0.001
    otlp_endpoint: Annotated[
        str | None,
        Row(
            HttpUrl(),
            "Metrics",
            "An OpenTelemetry collector to push metrics to, over OTLP/HTTP (port 4318 by custom); `/v1/metrics` is "
            "added where there is no path. Headers and certificates are taken from OpenTelemetry's own variables, "
            "`OTEL_EXPORTER_OTLP_HEADERS` and so on. `/metrics` is there in any case.",
            absent="nothing is pushed",
        ),
    ] = None
    otlp_interval_s: Annotated[float, Row(Number(0.1, 3600, "SECONDS"), "Metrics", "How often metrics are pushed.")] = (
        15.0
    )


def _table() -> Iterator[Setting]:
    hints = get_type_hints(Settings, include_extras=True)
    for row in dataclasses.fields(Settings):
        meta: Row = hints[row.name].__metadata__[0]
        yield Setting(row.name, meta.kind, row.default, meta.help, meta.section, meta.absent)


SETTINGS: tuple[Setting, ...] = tuple(_table())
