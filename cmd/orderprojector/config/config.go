// Package config is the program's configuration: one struct with one defaults
// function, loaded from flags over environment over a YAML file, and one
// validation that names field and value. Every setting has one name, used as
// flag and as key of the file; secrets never print themselves.
package config

import (
	"log/slog"
	"runtime"
	"strings"
	"time"

	"github.com/orderprojector/orderprojector/kafkaio"
	"github.com/orderprojector/orderprojector/projection"
)

// Config is everything the program can be told. The zero value is not usable:
// start from Default. A loaded Config remembers where each value came from.
type Config struct {
	Kafka         Kafka
	Database      Database
	Projection    Projection
	Outbox        Outbox
	Loyalty       Loyalty
	Notifications Notifications
	HTTP          HTTP
	Log           Log
	// ShutdownGrace bounds finishing in-flight work after a signal.
	ShutdownGrace time.Duration
	// StallLimit is how long records may wait without any progress of their
	// partition before consumption counts as unhealthy.
	StallLimit time.Duration
	// MemoryLimit is what the garbage collector keeps the process under, as far as
	// it can; 0 leaves it to GOMEMLIMIT.
	MemoryLimit ByteSize

	origins map[string]Origin
}

// Kafka is the connection to the cluster and the group membership.
type Kafka struct {
	BootstrapServers List
	ClientID         string // "" means orderprojector-<host name>
	SecurityProtocol string // PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL
	SASL             SASL
	TLS              TLS

	Topic          string
	Group          string
	GroupProtocol  string // classic or consumer (KIP-848)
	InstanceID     string // static membership; "" for none
	SessionTimeout time.Duration
	OnDataLoss     string // halt, exit or continue
	// DeadLetterTopic takes copies of dead letters; "<topic>" in it stands for
	// Topic. See DeadLetters.
	DeadLetterTopic string
}

// DeadLetters is the topic that takes copies of dead letters, "" for no copies.
func (k Kafka) DeadLetters() string {
	if k.DeadLetterTopic == noDeadLetters {
		return ""
	}
	return strings.ReplaceAll(k.DeadLetterTopic, "<topic>", k.Topic)
}

// noDeadLetters switches copies off where an empty value counts as unset.
const noDeadLetters = "none"

// SASL is how the program authenticates to Kafka.
type SASL struct {
	Mechanism string // PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER
	Username  string
	Password  Secret
	OAuth     OAuth
}

// OAuth says where an OAUTHBEARER token comes from: either a file that
// something else keeps fresh, or a token endpoint (client credentials grant).
type OAuth struct {
	TokenFile    string // read again for each new connection
	TokenURL     string
	ClientID     string
	ClientSecret Secret
	Scope        string
}

// TLS holds PEM file locations. An empty CALocation means the system's roots.
type TLS struct {
	CALocation          string
	CertificateLocation string
	KeyLocation         string
}

// Database is the connection to PostgreSQL.
type Database struct {
	URL                      DatabaseURL // empty: libpq's PG* variables
	Writers                  int         // connections that write
	ConnectTimeout           time.Duration
	StatementTimeout         time.Duration
	LockTimeout              time.Duration
	IdleInTransactionTimeout time.Duration
	// AllowNewerSchema lets the program work on a schema that is newer than
	// itself, such as during a rolling upgrade.
	AllowNewerSchema bool

	fromPGEnv bool // PGHOST or the like is set, so an empty URL means something
}

// Projection is how records are applied.
type Projection struct {
	BatchMaxRecords int
	BatchMaxBytes   ByteSize
	Breaker         bool     // pause the group when most events become dead letters
	CacheBytes      ByteSize // current rows kept in memory, over all partitions
	// GapDeadline and DeadLetterDeadline are when what waits for somebody is
	// overdue. They are stored, so that every command and view goes by the same.
	GapDeadline        time.Duration
	DeadLetterDeadline time.Duration
}

// Outbox is how the relay publishes messages.
type Outbox struct {
	Format       string        // json or cloudevents
	Source       string        // CloudEvents source
	PollInterval time.Duration // between looks at the whole outbox
}

// HTTP is the listener of health, metrics and API.
type HTTP struct {
	Address string
}

// Log is what goes to standard error.
type Log struct {
	Level  slog.Level
	Format string // text or json
}

// DefaultHTTPAddress is where `run` listens unless told otherwise. Only this
// default gives way to a free port when it is taken.
const DefaultHTTPAddress = "127.0.0.1:8080"

// DefaultRelayHTTPAddress is the same for `run relay`.
const DefaultRelayHTTPAddress = "127.0.0.1:8081"

// Default is the configuration before anything is loaded.
func Default() Config {
	return Config{
		Kafka: Kafka{
			SecurityProtocol: "PLAINTEXT",
			Topic:            "orders.events",
			Group:            "orderprojector",
			GroupProtocol:    "classic",
			SessionTimeout:   10 * time.Second,
			OnDataLoss:       "halt",
			DeadLetterTopic:  "<topic>-dlt",
		},
		Database: Database{
			Writers:                  min(4, max(2, runtime.NumCPU())),
			ConnectTimeout:           5 * time.Second,
			StatementTimeout:         10 * time.Second,
			LockTimeout:              5 * time.Second,
			IdleInTransactionTimeout: 10 * time.Second,
		},
		Projection: Projection{
			Breaker:         true,
			BatchMaxRecords: kafkaio.DefaultMaxBatchRecords,
			BatchMaxBytes:   kafkaio.DefaultMaxBatchBytes,
			CacheBytes:      projection.DefaultCacheBytes,

			GapDeadline:        15 * time.Minute,
			DeadLetterDeadline: 24 * time.Hour,
		},
		Outbox:        Outbox{Format: "json", Source: "/orders", PollInterval: time.Second},
		Loyalty:       defaultLoyalty(),
		Notifications: defaultNotifications(),
		HTTP:          HTTP{Address: DefaultHTTPAddress},
		Log:           Log{Level: slog.LevelInfo, Format: "text"},
		ShutdownGrace: 20 * time.Second,
		StallLimit:    time.Minute,
		MemoryLimit:   160 << 20,
	}
}
