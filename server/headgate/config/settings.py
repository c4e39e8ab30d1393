"""The table of settings: one line of it is a flag, a variable, a file key and a line of documentation.

`Settings` is that table: each field carries its section, kind, default and help. The command
line, the readers of environment and file, and `docs/configuration.md` are all made
from it, so a new setting is one new field.
"""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from headgate.config.kinds import (
    ADDRESS,
    ADDRESSES,
    BODY,
    DIRECTORY,
    EQUALS_PAIRS,
    HEADER,
    HEADER_PAIRS,
    HOST,
    HTTP_URL,
    MODE,
    NAME,
    NETWORK,
    ORIGIN_URL,
    PEER,
    PEM_FILE,
    PREFIX,
    RULES_FROM,
    SAN,
    SHARE,
    STAGES,
    STORE_URL,
    TEXT_FILE,
    XDS_NODE,
    Boolean,
    Choice,
    ListOf,
    Number,
    Peer,
    SettingKind,
    Whole,
)

ENV_PREFIX = "HEADGATE_"
REQUIRED: Any = dataclasses.MISSING

_MIB = 1024 * 1024

T = TypeVar("T")


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


class Section:
    """A section of docs/configuration.md. Called, it makes a row of the table: the default of a field of `Settings`."""

    def __init__(self, title: str) -> None:
        self._title = title

    def __call__(self, kind: SettingKind, default: T, text: str, absent: str = "none") -> T:
        """Return a field of a dataclass, which to a type checker is the default itself."""
        row = {"kind": kind, "section": self._title, "help": text, "absent": absent}
        return dataclasses.field(default=default, metadata=row)


SERVING = Section("Serving")
OPERATORS = Section("Operators")
XDS = Section("Rules over xDS")
PLANE = Section("Rules from a plane")
REGIONS = Section("Regions")
ANSWERS = Section("Answers")
CALLERS = Section("Callers")
BOUNDS = Section("Bounds")
DECISION_LOG = Section("Decision log")
LOGS = Section("Logs")
METRICS = Section("Metrics")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of one process: each is there, and was accepted by its kind."""

    rules: Path | str = SERVING(
        RULES_FROM,
        REQUIRED,
        "Directory of rule files (`*.yaml`, `*.yml`), watched for changes; or an xDS server that sends them, as Envoy "
        "Gateway does (`xds://host:port`, see docs/xds.md); or a plane that hands them on "
        "(`plane://host:port,host:port`, see docs/plane.md).",
    )
    grpc: str = SERVING(ADDRESS, "0.0.0.0:8081", "Where gRPC listens.")
    http: str = SERVING(ADDRESS, "0.0.0.0:8080", "Where HTTP listens: /json, health, metrics, the current rules.")
    http_host: tuple[str, ...] = SERVING(
        ListOf(HOST),
        (),
        "A name by which `http` and `admin` may be asked for /json, /rules, /regions, /top, /trend, /decisions and "
        "/explain where no token is needed, beside addresses, this machine's name and names that no public DNS has; "
        "`*` is any. May be repeated. See docs/security.md.",
        absent="no other name",
    )
    socket_mode: str = SERVING(
        MODE,
        "0600",
        "Who may connect to the Unix sockets of `grpc` and `http`, as a file's mode: `0600` is this user alone, "
        "`0660` its group too, which may be a proxy's in another container. See docs/workers.md.",
    )
    admin: str | None = SERVING(
        ADDRESS,
        None,
        "Where HTTP for operators listens: /metrics, /rules and /version are then here alone, without a token, "
        "and /json is not; health is on both. See docs/security.md.",
        absent="all of it is on `http`",
    )
    metrics: str | None = SERVING(
        ADDRESS, None, "Where /metrics is served too, by itself, for scrapers.", absent="`http` or `admin` alone"
    )
    debug: str | None = SERVING(
        ADDRESS,
        None,
        "Where /rlconfig is served, the rules in the words of envoyproxy/ratelimit, for `egctl` and scripts that read "
        "them there. See docs/migrate.md.",
        absent="not served",
    )
    admin_grpc: str | None = OPERATORS(
        ADDRESS,
        None,
        "Where gRPC for operators listens: `headgate.v1.Keys`, behind `headgate key`, and `headgate.v1.Decisions`, "
        "behind `headgate explain` and `headgate tail`. Needs `admin_token_file` or `admin_tls_client_ca`: who "
        "changes a limit is known. Of several workers the first has it. See docs/keys.md.",
        absent="not served",
    )
    admin_token_file: Path | None = OPERATORS(
        TEXT_FILE,
        None,
        "Tokens of operators, lines `NAME=TOKEN`: they send `authorization: Bearer TOKEN` to `admin_grpc`, and the "
        "name stands in the audit log. Read again when it changes.",
        absent="no token",
    )
    admin_tls_cert: Path | None = OPERATORS(
        PEM_FILE, None, "Certificate chain for `admin_grpc`; read again when it changes.", absent="no TLS"
    )
    admin_tls_key: Path | None = OPERATORS(PEM_FILE, None, "The certificate's private key.", absent="no TLS")
    admin_tls_client_ca: Path | None = OPERATORS(
        PEM_FILE,
        None,
        "Authorities whose operators may connect to `admin_grpc`: they must then present a certificate.",
        absent="no certificate",
    )
    admin_tls_client_san: tuple[str, ...] = OPERATORS(
        ListOf(SAN),
        (),
        "A name (SAN) that an operator's certificate must have; any of those given is enough. May be repeated.",
        absent="any certificate of `admin_tls_client_ca`",
    )
    transport: Literal["auto", "native", "grpcio"] = SERVING(
        Choice(("auto", "native", "grpcio")),
        "auto",
        "What serves gRPC. `native` is the fast one; `auto` takes it where it is installed, else `grpcio`. "
        "With TLS, and on addresses that other machines can reach, `native` stands behind a guard.",
    )
    trusted_network: tuple[str, ...] = SERVING(
        ListOf(NETWORK),
        (),
        "A network whose gRPC callers the guard relays unseen, bound only in number. May be repeated; "
        "`0.0.0.0/0` (with `::/0` for IPv6) trusts everybody, and there is no guard without TLS then.",
    )
    workers: int = SERVING(
        Whole(1, 1024),
        1,
        "Processes that serve, each a node of its own, with a supervisor above them. They share the `grpc` port; "
        "of `unix:/path` each has its own, `unix:/path.0` and so on. More than one needs a Redis origin. "
        "See docs/workers.md.",
    )
    data_dir: Path | None = SERVING(
        DIRECTORY,
        None,
        "Directory for what outlives a restart: the last good rules. Created when missing.",
        absent="nothing is kept",
    )
    merge_domains: bool = SERVING(Boolean(), False, "Let several rule files define one domain.")
    start_without_rules: bool = SERVING(
        Boolean(),
        False,
        "Be ready before there are any good rules: everything passes until they come. Else a start without good rules, "
        "in the directory or in `data_dir`, is an error, and with `xds://` the process is not ready until rules come.",
    )
    rules_accept: Literal["domain", "all"] = SERVING(
        Choice(("domain", "all")),
        "domain",
        "The part of changed rules that one problem holds back: `domain`, the rules of the domain that has it, which "
        "keeps its last good ones; `all`, the whole set.",
    )
    rules_overlay: Path | None = SERVING(
        DIRECTORY,
        None,
        "Directory of overlay files (`*.yaml`, `*.yml`), watched for changes: they lay fields such as `algorithm` and "
        "`on_error` over rules that others write, wherever `rules` come from. See docs/overlay.md.",
        absent="no overlay",
    )
    default_algorithm: Literal["sliding_window", "fixed_window", "gcra"] = SERVING(
        Choice(("sliding_window", "fixed_window", "gcra")),
        "sliding_window",
        "Algorithm of rules that name none. `gcra` can't keep limits of 0, nor those with `scope: global`: these have "
        "`sliding_window` then. See docs/overlay.md.",
    )
    default_on_error: Literal["local", "open", "closed"] = SERVING(
        Choice(("local", "open", "closed")),
        "local",
        "What decides by rules that say neither `on_error` nor `class` while the origin can't be asked. "
        "See docs/failures.md.",
    )
    drain_s: float = SERVING(
        Number(0, 3600, "SECONDS"),
        5.0,
        "After SIGTERM or SIGINT: how long to go on answering while health already says not serving, "
        "so that callers leave first.",
    )

    xds_node_id: str = XDS(
        XDS_NODE, "envoy-ratelimit", "Name that the xDS server knows this client by; it answers no other."
    )
    xds_node_metadata: str = XDS(EQUALS_PAIRS, "", "Metadata of the node, for servers that choose by it.")
    xds_headers: str = XDS(HEADER_PAIRS, "", "Headers of every stream, such as a token.")
    xds_protocol: Literal["sotw", "delta"] = XDS(
        Choice(("sotw", "delta")),
        "sotw",
        "Form of the stream: `sotw` gets all rules with each change, `delta` those that changed.",
    )
    xds_tls: bool = XDS(Boolean(), False, "Speak TLS to the xDS server.")
    xds_ca: Path | None = XDS(
        PEM_FILE, None, "Authorities of the server's certificate; read again for each stream.", absent="the system's"
    )
    xds_cert: Path | None = XDS(
        PEM_FILE, None, "Certificate chain to show to the server; read again for each stream.", absent="none is shown"
    )
    xds_key: Path | None = XDS(PEM_FILE, None, "The certificate's private key.", absent="none is shown")
    xds_server_name: str | None = XDS(
        SAN, None, "Name that the server's certificate must have.", absent="the host of `rules`"
    )
    xds_max_message_bytes: int = XDS(
        Whole(65536, 1024 * _MIB), 64 * _MIB, "Largest message that is taken from the server: all rules are one."
    )
    xds_retry_s: float = XDS(
        Number(0.05, 3600, "SECONDS"), 1.0, "Wait before the next stream after one that ended; doubles each time."
    )
    xds_retry_max_s: float = XDS(Number(0.05, 3600, "SECONDS"), 30.0, "Longest wait before the next stream.")

    plane_token_file: Path | None = PLANE(
        TEXT_FILE,
        None,
        "Token to show to the plane: the first line of this file, `TOKEN` or `NAME=TOKEN`; read again for each stream.",
        absent="no token",
    )
    plane_tls: bool = PLANE(Boolean(), False, "Speak TLS to the plane.")
    plane_ca: Path | None = PLANE(
        PEM_FILE, None, "Authorities of the plane's certificate; read again for each stream.", absent="the system's"
    )
    plane_cert: Path | None = PLANE(
        PEM_FILE, None, "Certificate chain to show to the plane; read again for each stream.", absent="none is shown"
    )
    plane_key: Path | None = PLANE(PEM_FILE, None, "The certificate's private key.", absent="none is shown")
    plane_server_name: str | None = PLANE(
        SAN, None, "Name that the plane's certificate must have.", absent="the host of its address"
    )
    upstream: str | None = PLANE(
        ADDRESSES,
        None,
        "Of `headgate plane`: the plane that this one is a relay of, by the settings above.",
        absent="it is the root",
    )
    plane_store: str | None = PLANE(
        STORE_URL,
        None,
        "Of `headgate plane` without `upstream`: a PostgreSQL database that several roots write, each with a copy in "
        "its `data_dir` (see docs/plane.md). A password is better in a file, which is read for each connection.",
        absent="one root writes its log into `data_dir`",
    )
    promote: bool = PLANE(
        Boolean(),
        False,
        "Of `headgate plane` without `upstream`: make the copy of a relay the root, because the former root is lost. "
        "With `plane_store`: begin an empty database with what `data_dir` has.",
    )
    rollout_stages: str = PLANE(
        STAGES,
        "1%,10%,50%",
        "Of `headgate plane`: shares of the limit keys that a change goes to which is tighter for somebody, one after "
        "the other, before it goes to everybody.",
    )
    rollout_stage_s: float = PLANE(
        Number(1, 86_400, "SECONDS"), 60.0, "Of `headgate plane`: how long each stage lasts, at least."
    )
    rollout_expect_denials: str = PLANE(
        SHARE,
        "1%",
        "Of `headgate plane`: share of requests that a change may deny in addition; if it denies more, the plane takes "
        "it back. `--expect-denials` says it for one change.",
    )
    plane_rights_file: Path | None = PLANE(
        TEXT_FILE,
        None,
        "Of `headgate plane`: who may do what, lines `NAME=watch`, `NAME=change:DOMAIN` or `NAME=change:*`, for names "
        "of `admin_token_file` and of certificates. Read again when it changes.",
        absent="whoever is known may do everything",
    )

    region: str = REGIONS(NAME, "local", "The name of this region.")
    node_id: str | None = REGIONS(
        NAME, None, "The name of this node, unique in its region.", absent="host name and a random part"
    )
    origin: str = REGIONS(
        ORIGIN_URL,
        "memory://",
        "Where the nodes of a region meet. `memory://` is one process by itself. A URL with a password belongs "
        "into a file (`file:/path`): on the command line others see it. The list of servers in a file may change while "
        "nodes run. See docs/redis.md.",
    )
    redis_prefix: str | None = REGIONS(
        PREFIX,
        None,
        "What begins every key in Redis, the same on all nodes of a region: with different ones, several "
        "installations share a Redis and no counts.",
        absent="`headgate:` and the region",
    )
    wait_for_origin: float = REGIONS(
        Number(0, 3600, "SECONDS"),
        0.0,
        "Be not ready until all of the origin has answered once, and end with an error when it has not after this "
        "time, so that a wrong password stops a rollout. 0 is ready at once, by the rules' failure policies.",
    )
    origin_deadline_ms: int = REGIONS(
        Whole(1, 1000, "MS"), 5, "How long a request may wait for the origin before its rule's failure policy decides."
    )
    breaker_error_rate: float = REGIONS(
        Number(0.0001, 1, "SHARE"),
        0.01,
        "The share of failed calls to a shard, over a second, at which nobody waits for it any more.",
    )
    breaker_missed_share: float = REGIONS(
        Number(0.01, 1, "SHARE"),
        0.5,
        "The share of a second's requests to a shard that may miss their deadlines, each call being answered in the "
        "end; beyond it nobody waits for that shard any more. 1 waits for as slow a shard as there is.",
    )
    breaker_min_samples: int = REGIONS(
        Whole(1, 10_000), 20, "Calls in that second below which there is no share to speak of."
    )
    breaker_cooldown_s: float = REGIONS(
        Number(0.01, 60, "SECONDS"),
        0.5,
        "How long a failed shard is left alone before one call tries it; doubled up to four times that.",
    )
    peer: tuple[Peer, ...] = REGIONS(
        ListOf(PEER), (), "Another region and where its exchange listens. May be repeated."
    )
    peer_file: Path | None = REGIONS(
        TEXT_FILE,
        None,
        "The other regions in a file, instead of `peer`: a line `REGION=ADDR` for each. Read again when it changes, so "
        "regions are added and removed without a restart. See docs/regions.md.",
        absent="those of `peer`",
    )
    exchange: str = REGIONS(
        ADDRESS, "0.0.0.0:8082", "Where other regions reach this one; listens only with `peer` or `peer_file`."
    )
    exchange_interval_s: float = REGIONS(
        Number(0.1, 60, "SECONDS"),
        1.0,
        "How often this region tells its peers what has changed; what is admitted twice grows with it.",
    )
    exchange_tls_cert: Path | None = REGIONS(
        PEM_FILE,
        None,
        "Certificate chain that this region shows its peers, with the region's name as a DNS name (SAN); read "
        "again when it changes. See docs/security.md.",
        absent="no TLS",
    )
    exchange_tls_key: Path | None = REGIONS(PEM_FILE, None, "The certificate's private key.", absent="no TLS")
    exchange_tls_ca: Path | None = REGIONS(
        PEM_FILE, None, "Authorities whose certificates peers must show.", absent="no TLS"
    )
    exchange_token_file: Path | None = REGIONS(
        TEXT_FILE,
        None,
        "One token that all regions share, or lines `REGION=TOKEN`, one for each: a peer then speaks only for the "
        "region whose token it sends. Read again when it changes.",
        absent="no token",
    )
    exchange_insecure: bool = REGIONS(
        Boolean(),
        False,
        "Exchange counts over a network with neither certificates nor tokens: whoever reaches `exchange` can then "
        "speak for any region. Without it such a start is refused.",
    )

    exchange_new_keys_bytes: int = REGIONS(
        Whole(_MIB, 2**50, "BYTES"),
        512 * _MIB,
        "Bytes of the origin that one peer may take with keys that are new here, at once and again per day: some "
        "2,000 keys per MiB. What is more waits at the peer. See docs/security.md.",
    )
    exchange_inside: bool = REGIONS(
        Boolean(),
        True,
        "Speak to other regions from inside `headgate serve`. `false` where `headgate exchange` does it beside "
        "the nodes; `peer` or `peer_file` is needed all the same, because limits depend on how many regions there are.",
    )

    @property
    def has_peers(self) -> bool:
        """True if there are other regions, or may be while the process runs."""
        return bool(self.peer) or self.peer_file is not None

    response_headers: bool = ANSWERS(
        Boolean(),
        False,
        "Add the headers below to answers, and `RateLimit-Policy` and `RateLimit` of the IETF's draft 10, for Envoy to "
        "hand to its caller. A denial over `/json` has `Retry-After` in any case. See docs/envoy.md.",
    )
    header_limit: str = ANSWERS(HEADER, "RateLimit-Limit", "Header with the limit.")
    header_remaining: str = ANSWERS(
        HEADER, "RateLimit-Remaining", "Header with what is left: a guide, not a precise count."
    )
    header_reset: str = ANSWERS(HEADER, "RateLimit-Reset", "Header with the seconds until the limit resets.")
    header_retry_after: str = ANSWERS(HEADER, "Retry-After", "Header with the seconds to wait, on denials only.")
    exact_reset: bool = ANSWERS(
        Boolean(),
        False,
        "Tell everybody the exact time to come back. Else the times in an answer (`duration_until_reset`, the reset, "
        "`Retry-After`) are up to 20% longer, never shorter, each answer's by itself: so callers who were denied "
        "together come back apart. The decision log has the exact times in any case.",
    )
    denied_body: str = ANSWERS(BODY, "", "Body for Envoy to send with a denial.", absent="Envoy's own")
    shadow_mode: bool = ANSWERS(Boolean(), False, "Decide and count everything, deny nothing.")
    dynamic_metadata: bool = ANSWERS(Boolean(), False, "Return a matched rule's `metadata` as dynamic metadata.")
    request_metadata: bool = ANSWERS(
        Boolean(),
        False,
        "Tell the request back as dynamic metadata, in envoyproxy/ratelimit's form: `domain`, `descriptors`, "
        "`hitsAddend`, and of what passed `metadata` and `passedBackends`. For Envoy AI Gateway. See docs/envoy.md.",
    )

    reason_header: str | None = ANSWERS(
        HEADER,
        None,
        "Header that says why: domain, rule, rule set version, path and decision id, as words with `=`. Envoy adds "
        "it to what its caller gets. See docs/explain.md.",
        absent="no such header",
    )
    reason_metadata: bool = ANSWERS(
        Boolean(),
        False,
        "Say the same in dynamic metadata, under `headgate`: for Envoy's access log, and for nobody else.",
    )
    overdraft: bool = ANSWERS(
        Boolean(),
        False,
        "Rules that don't say `overdraft` themselves charge every cost that a request names, beyond the limit if need "
        "be, as envoyproxy/ratelimit does. See docs/tokens.md.",
    )
    refund: bool = ANSWERS(
        Boolean(),
        False,
        "Rules that don't say `refund` themselves let what was charged be given back (`is_negative_hits`), as "
        "envoyproxy/ratelimit does. See docs/tokens.md.",
    )

    request_limits: Literal["allow", "lower", "refuse"] = ANSWERS(
        Choice(("allow", "lower", "refuse")),
        "lower",
        "Limits that come with a request (`limit` in a descriptor): `lower` lets them only take away, `allow` takes "
        "them instead of the rule's, as envoyproxy/ratelimit does, `refuse` answers INVALID_ARGUMENT. A rules file may "
        "say otherwise for its domain. See docs/rules.md.",
    )

    tls_cert: Path | None = CALLERS(
        PEM_FILE, None, "Certificate chain for gRPC; read again when it changes.", absent="no TLS"
    )
    tls_key: Path | None = CALLERS(PEM_FILE, None, "The certificate's private key.", absent="no TLS")
    tls_client_ca: Path | None = CALLERS(
        PEM_FILE,
        None,
        "Authorities whose clients may connect: clients must then present a certificate.",
        absent="any client",
    )

    tls_client_verify: bool = CALLERS(
        Boolean(),
        True,
        "Demand such a certificate where `tls_client_ca` is set. `false` takes any caller, as envoyproxy/ratelimit "
        "does behind Envoy Gateway. See docs/security.md.",
    )
    tls_client_san: tuple[str, ...] = CALLERS(
        ListOf(SAN),
        (),
        "A name (SAN) that a client's certificate must have; any of those given is enough. May be repeated. "
        "Others get PERMISSION_DENIED; health checks are answered all the same.",
        absent="any certificate of `tls_client_ca`",
    )
    token_file: Path | None = CALLERS(
        TEXT_FILE,
        None,
        "Bearer tokens, one per line, of which callers must send one (`authorization: Bearer TOKEN`), over gRPC "
        "and for /json and /rules; read again when it changes. Health checks need none.",
        absent="no token",
    )

    max_message_bytes: int = BOUNDS(
        Whole(1024, 16 * _MIB, "BYTES"), 64 * 1024, "The largest request over gRPC; over HTTP it is 8 KiB at most."
    )
    max_pending_calls: int = BOUNDS(
        Whole(1, 1_000_000), 10_000, "Calls waiting for an answer; more are refused as UNAVAILABLE."
    )
    max_pending_bytes: int = BOUNDS(Whole(_MIB, 64 * 1024 * _MIB, "BYTES"), 64 * _MIB, "The same, by their size.")
    max_concurrent_streams: int = BOUNDS(Whole(1, 100_000), 100, "Calls under way on one gRPC connection.")
    max_connections: int = BOUNDS(
        Whole(1, 1_000_000),
        1_000,
        "gRPC connections, through the guard; less where the process may not open three files for each. For one more, "
        "the one whose last call is longest ago is closed.",
    )
    max_connections_per_address: int = BOUNDS(
        Whole(1, 1_000_000),
        200,
        "The same, from one address (in IPv6, one /64) outside of the trusted networks; more are refused.",
    )
    max_new_connections_per_s: float = BOUNDS(
        Number(0.01, 100_000, "CONNECTIONS"),
        20.0,
        "New gRPC connections in a second from one such address, once it has made as many as it may have at once.",
    )
    max_open_calls: int = BOUNDS(
        Whole(1, 10_000_000),
        4_000,
        "gRPC calls under way, through the guard, on all connections together: each takes up to 35 KB. Of more, those "
        "are refused whose address and connection have more than an equal share.",
    )
    handshake_timeout_s: float = BOUNDS(
        Number(0.1, 3600, "SECONDS"),
        10.0,
        "From the connection to the first bytes of HTTP/2, TLS included; through the guard, as all that follow.",
    )
    message_timeout_s: float = BOUNDS(
        Number(0.1, 3600, "SECONDS"),
        10.0,
        "How long a gRPC call may take to arrive, and how long a caller may leave its answers unread.",
    )
    idle_timeout_s: float = BOUNDS(
        Number(0.1, 2_592_000, "SECONDS"),
        300.0,
        "After so long without a call a gRPC connection is closed, in good order.",
    )
    max_connection_age_s: float = BOUNDS(
        Number(0.1, 2_592_000, "SECONDS"),
        3_600.0,
        "After so long, give or take a tenth, a gRPC caller is asked to connect anew; no call fails by it.",
    )
    max_unfinished_bytes: int = BOUNDS(
        Whole(_MIB, 64 * 1024 * _MIB, "BYTES"),
        64 * _MIB,
        "gRPC calls that have not arrived whole; one connection may hold a sixteenth of it, or two messages.",
    )
    max_cells: int | None = BOUNDS(
        Whole(1000, 1_000_000_000),
        None,
        "Counters kept in memory by each process. Beyond that expired ones go first, then those not used for longest.",
        absent="what fits into the container's memory limit, at most 1000000",
    )
    match_cache_entries: int = BOUNDS(Whole(1, 100_000_000), 16_384, "Requests whose matching rules are remembered.")
    match_cache_bytes: int = BOUNDS(Whole(1, 2**40), 32 * _MIB, "What they may take in memory together, in bytes.")
    max_descriptors: int = BOUNDS(Whole(1, 256), 32, "Descriptors of one request; with more it is INVALID_ARGUMENT.")
    max_entries: int = BOUNDS(Whole(1, 256), 32, "Entries of one descriptor; with more it is INVALID_ARGUMENT.")

    reservation_max_ttl_s: float = BOUNDS(
        Number(1, 86_400, "SECONDS"),
        3_600.0,
        "How long a reservation may wait to be settled; who asks for more gets INVALID_ARGUMENT. The origin remembers "
        "each that was settled for as long as its caller asked for. See docs/reservations.md.",
    )

    decision_log: bool = DECISION_LOG(
        Boolean(),
        True,
        "Keep the decision log in `data_dir`, where there is one: every denial, every degraded decision, some "
        "allowances, and what happened to this node. `headgate explain` reads it. See docs/explain.md.",
    )
    decision_log_stdout: bool = DECISION_LOG(
        Boolean(), False, "Write the decision log to stdout too, as JSON lines, to be shipped."
    )
    decision_log_otlp: bool = DECISION_LOG(
        Boolean(),
        False,
        "Send the decision log to `otlp_endpoint` too, as OpenTelemetry log records (`/v1/logs`). What the "
        "collector does not take is dropped and counted.",
    )
    decision_log_allowances: int = DECISION_LOG(
        Whole(0, 1_000_000_000),
        1_000,
        "Of so many allowances one is logged: 1 logs all, 0 none. Denials and degraded decisions are all logged.",
    )
    decision_log_values: bool = DECISION_LOG(
        Boolean(),
        False,
        "Log descriptors as they are, and not their hashes alone: they may name people. `headgate rules replay` "
        "needs them.",
    )
    decision_log_bytes: int = DECISION_LOG(
        Whole(64 * _MIB, 2**50, "BYTES"),
        1024 * _MIB,
        "What the decision log may take of the disk, for all processes that share `data_dir`: the oldest goes.",
    )
    decision_log_hours: int = DECISION_LOG(Whole(1, 876_000, "HOURS"), 168, "For how long it is kept at most.")

    log_level: str = LOGS(
        Choice(("debug", "info", "warning", "error")),
        "info",
        "The least important level to log, to stderr. SIGUSR1 switches to `debug`, and back, at any time.",
    )
    log_format: str = LOGS(
        Choice(("auto", "json", "console")),
        "auto",
        "One JSON object per line, or lines for people; `auto` is `console` on a terminal and `json` elsewhere.",
    )

    near_limit_ratio: float = METRICS(
        Number(0, 1), 0.8, "From which share of its limit on an admission is counted as near the limit."
    )
    ratelimit_metrics: bool = METRICS(
        Boolean(),
        False,
        "Show the counts of each rule under the names of envoyproxy/ratelimit too "
        "(`ratelimit_service_rate_limit_over_limit` and so on), for dashboards made for it.",
    )
    traces: bool = METRICS(
        Boolean(),
        False,
        "Send spans of decisions to `otlp_endpoint`: of those whose callers sample them (`traceparent`), of "
        "`trace_share` of the others, and of all that fail. Decisions are then made on the loop alone, which costs "
        "some CPU.",
    )
    trace_share: float = METRICS(
        Number(0, 1), 0.001, "Of decisions whose callers say nothing of traces, the share that is traced."
    )
    otlp_endpoint: str | None = METRICS(
        HTTP_URL,
        None,
        "An OpenTelemetry collector to push metrics to, over OTLP/HTTP (port 4318 by custom); `/v1/metrics` is "
        "added where there is no path. Headers and certificates are taken from OpenTelemetry's own variables, "
        "`OTEL_EXPORTER_OTLP_HEADERS` and so on. `/metrics` is there in any case.",
        absent="nothing is pushed",
    )
    otlp_interval_s: float = METRICS(Number(0.1, 3600, "SECONDS"), 15.0, "How often metrics are pushed.")

    @property
    def client_ca(self) -> Path | None:
        """Authorities whose certificates callers must show; None where they need none."""
        return self.tls_client_ca if self.tls_client_verify else None


SETTINGS: tuple[Setting, ...] = tuple(
    [Setting(name=row.name, default=row.default, **row.metadata) for row in dataclasses.fields(Settings)]
)
