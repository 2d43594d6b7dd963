package config

import (
	"slices"

	"github.com/spf13/pflag"
)

// Section groups the settings that a command needs.
type Section string

// The sections.
const (
	SectionKafka         Section = "kafka"      // how to reach the cluster, and the topic
	SectionGroup         Section = "group"      // consumer-group membership
	SectionDatabase      Section = "database"   // how to reach PostgreSQL
	SectionProjection    Section = "projection" // batches and memory
	SectionOutbox        Section = "outbox"     // what the relay publishes
	SectionLoyalty       Section = "loyalty"
	SectionNotifications Section = "notifications" // the consumer and its webhook
	SectionHTTP          Section = "http"
	SectionLog           Section = "log"
	SectionProcess       Section = "process"
)

// setting is one value: its name (flag and key of the file), its environment
// variable and where it goes.
type setting struct {
	section Section
	name    string
	env     string
	usage   string
	value   pflag.Value
	// secret keeps the value off the command line, which every user of the
	// machine can read.
	secret bool
	// fileVariant adds NAME-file and ENV_FILE, which name a file that holds the value.
	fileVariant bool
}

// settings lists every setting of c, bound to its fields.
func (c *Config) settings() []setting {
	k, d, p := &c.Kafka, &c.Database, &c.Projection
	return append([]setting{
		{section: SectionKafka, name: "kafka-bootstrap-servers", env: "KAFKA_BOOTSTRAP_SERVERS", value: &k.BootstrapServers,
			usage: "Kafka brokers to start from: host:port, separated by commas"},
		{section: SectionKafka, name: "kafka-client-id", env: "KAFKA_CLIENT_ID", value: (*text)(&k.ClientID),
			usage: "client ID that the brokers see (default orderprojector-<host>)"},
		{section: SectionKafka, name: "kafka-security-protocol", env: "KAFKA_SECURITY_PROTOCOL", value: (*text)(&k.SecurityProtocol),
			usage: "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL"},
		{section: SectionKafka, name: "kafka-ssl-ca-location", env: "KAFKA_SSL_CA_LOCATION", value: (*text)(&k.TLS.CALocation),
			usage: "PEM file with the certificate authorities to trust (default the system's)"},
		{section: SectionKafka, name: "kafka-ssl-certificate-location", env: "KAFKA_SSL_CERTIFICATE_LOCATION", value: (*text)(&k.TLS.CertificateLocation),
			usage: "PEM file with the client certificate"},
		{section: SectionKafka, name: "kafka-ssl-key-location", env: "KAFKA_SSL_KEY_LOCATION", value: (*text)(&k.TLS.KeyLocation),
			usage: "PEM file with the client certificate's key"},
		{section: SectionKafka, name: "kafka-sasl-mechanism", env: "KAFKA_SASL_MECHANISM", value: (*text)(&k.SASL.Mechanism),
			usage: "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER"},
		{section: SectionKafka, name: "kafka-sasl-username", env: "KAFKA_SASL_USERNAME", value: (*text)(&k.SASL.Username),
			usage: "SASL user name"},
		{section: SectionKafka, name: "kafka-sasl-password", env: "KAFKA_SASL_PASSWORD", value: &k.SASL.Password,
			usage: "SASL password", secret: true, fileVariant: true},
		{section: SectionKafka, name: "kafka-sasl-oauthbearer-token-file", env: "KAFKA_SASL_OAUTHBEARER_TOKEN_FILE", value: (*text)(&k.SASL.OAuth.TokenFile),
			usage: "file with the OAUTHBEARER token, read again for each connection"},
		{section: SectionKafka, name: "kafka-sasl-oauthbearer-token-endpoint-url", env: "KAFKA_SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL", value: (*text)(&k.SASL.OAuth.TokenURL),
			usage: "OAuth 2.0 token endpoint (client credentials grant)"},
		{section: SectionKafka, name: "kafka-sasl-oauthbearer-client-id", env: "KAFKA_SASL_OAUTHBEARER_CLIENT_ID", value: (*text)(&k.SASL.OAuth.ClientID),
			usage: "client ID for the token endpoint"},
		{section: SectionKafka, name: "kafka-sasl-oauthbearer-client-secret", env: "KAFKA_SASL_OAUTHBEARER_CLIENT_SECRET", value: &k.SASL.OAuth.ClientSecret,
			usage: "client secret for the token endpoint", secret: true, fileVariant: true},
		{section: SectionKafka, name: "kafka-sasl-oauthbearer-scope", env: "KAFKA_SASL_OAUTHBEARER_SCOPE", value: (*text)(&k.SASL.OAuth.Scope),
			usage: "scope to ask the token endpoint for"},

		{section: SectionGroup, name: "topic", env: "ORDERPROJECTOR_TOPIC", value: (*text)(&k.Topic),
			usage: "topic with the order events"},
		{section: SectionGroup, name: "group", env: "ORDERPROJECTOR_GROUP", value: (*text)(&k.Group),
			usage: "consumer group"},
		{section: SectionGroup, name: "group-protocol", env: "ORDERPROJECTOR_GROUP_PROTOCOL", value: (*text)(&k.GroupProtocol),
			usage: "classic (cooperative-sticky) or consumer (KIP-848)"},
		{section: SectionGroup, name: "instance-id", env: "ORDERPROJECTOR_INSTANCE_ID", value: (*text)(&k.InstanceID),
			usage: "static membership: this member's group.instance.id"},
		{section: SectionGroup, name: "session-timeout", env: "ORDERPROJECTOR_SESSION_TIMEOUT", value: (*duration)(&k.SessionTimeout),
			usage: "how long the group waits for a silent member (classic protocol)"},
		{section: SectionGroup, name: "on-data-loss", env: "ORDERPROJECTOR_ON_DATA_LOSS", value: (*text)(&k.OnDataLoss),
			usage: "where retention removed unread records: halt that partition, exit, or continue (counted)"},
		{section: SectionGroup, name: "dead-letter-topic", env: "ORDERPROJECTOR_DEAD_LETTER_TOPIC", value: (*text)(&k.DeadLetterTopic),
			usage: "topic for copies of dead letters; empty or none: no copies"},

		{section: SectionDatabase, name: "database-url", env: "DATABASE_URL", value: &d.URL, fileVariant: true,
			usage: "PostgreSQL connection string (default: PGHOST and its like)"},
		{section: SectionDatabase, name: "database-connect-timeout", env: "ORDERPROJECTOR_DATABASE_CONNECT_TIMEOUT", value: (*duration)(&d.ConnectTimeout),
			usage: "deadline of one connection attempt"},
		{section: SectionDatabase, name: "database-statement-timeout", env: "ORDERPROJECTOR_DATABASE_STATEMENT_TIMEOUT", value: (*duration)(&d.StatementTimeout),
			usage: "statement_timeout of each session; 5s for the relay's unless set"},
		{section: SectionDatabase, name: "database-lock-timeout", env: "ORDERPROJECTOR_DATABASE_LOCK_TIMEOUT", value: (*duration)(&d.LockTimeout),
			usage: "lock_timeout of each session"},
		{section: SectionDatabase, name: "database-idle-in-transaction-timeout", env: "ORDERPROJECTOR_DATABASE_IDLE_IN_TRANSACTION_TIMEOUT", value: (*duration)(&d.IdleInTransactionTimeout),
			usage: "idle_in_transaction_session_timeout of each session"},
		{section: SectionDatabase, name: "allow-newer-schema", env: "ORDERPROJECTOR_ALLOW_NEWER_SCHEMA", value: (*boolean)(&d.AllowNewerSchema),
			usage: "work on a database schema newer than this program"},

		{section: SectionProjection, name: "writers", env: "ORDERPROJECTOR_WRITERS", value: (*integer)(&d.Writers),
			usage: "database connections that write"},
		{section: SectionProjection, name: "batch-max-records", env: "ORDERPROJECTOR_BATCH_MAX_RECORDS", value: (*integer)(&p.BatchMaxRecords),
			usage: "most records in one transaction"},
		{section: SectionProjection, name: "batch-max-bytes", env: "ORDERPROJECTOR_BATCH_MAX_BYTES", value: &p.BatchMaxBytes,
			usage: "most bytes of records in one transaction"},
		{section: SectionProjection, name: "cache-bytes", env: "ORDERPROJECTOR_CACHE_BYTES", value: &p.CacheBytes,
			usage: "memory for current orders"},
		{section: SectionProjection, name: "gap-deadline", env: "ORDERPROJECTOR_GAP_DEADLINE", value: (*duration)(&p.GapDeadline),
			usage: "for how long an order may wait for a missing version before it is overdue"},
		{section: SectionProjection, name: "dead-letter-deadline", env: "ORDERPROJECTOR_DEAD_LETTER_DEADLINE", value: (*duration)(&p.DeadLetterDeadline),
			usage: "for how long a dead letter may wait for somebody before it is overdue"},
		{section: SectionProjection, name: "breaker", env: "ORDERPROJECTOR_BREAKER", value: (*boolean)(&p.Breaker),
			usage: "pause the group when most events of five minutes become dead letters of one reason"},

		{section: SectionOutbox, name: "outbox-format", env: "ORDERPROJECTOR_OUTBOX_FORMAT", value: (*text)(&c.Outbox.Format),
			usage: "how the relay writes events: json, or cloudevents (1.0, binary mode)"},
		{section: SectionOutbox, name: "outbox-source", env: "ORDERPROJECTOR_OUTBOX_SOURCE", value: (*text)(&c.Outbox.Source),
			usage: "source of the relay's CloudEvents, a URI reference"},
		{section: SectionOutbox, name: "outbox-poll-interval", env: "ORDERPROJECTOR_OUTBOX_POLL_INTERVAL", value: (*duration)(&c.Outbox.PollInterval),
			usage: "how often the relay looks at the whole outbox, also without a notification"},

		{section: SectionHTTP, name: "http-address", env: "ORDERPROJECTOR_HTTP_ADDRESS", value: (*text)(&c.HTTP.Address),
			usage: "address of health, metrics and API; port 0 takes a free one"},

		{section: SectionLog, name: "log-level", env: "ORDERPROJECTOR_LOG_LEVEL", value: (*level)(&c.Log.Level),
			usage: "debug, info, warn or error"},
		{section: SectionLog, name: "log-format", env: "ORDERPROJECTOR_LOG_FORMAT", value: (*text)(&c.Log.Format),
			usage: "text or json"},

		{section: SectionProcess, name: "memory-limit", env: "ORDERPROJECTOR_MEMORY_LIMIT", value: &c.MemoryLimit,
			usage: "memory that the garbage collector keeps the process under; 0 leaves it to GOMEMLIMIT"},
		{section: SectionProcess, name: "shutdown-grace", env: "ORDERPROJECTOR_SHUTDOWN_GRACE", value: (*duration)(&c.ShutdownGrace),
			usage: "time to finish in-flight work after SIGTERM or SIGINT"},
		{section: SectionProcess, name: "stall-limit", env: "ORDERPROJECTOR_STALL_LIMIT", value: (*duration)(&c.StallLimit),
			usage: "how long records may wait without progress, or a partition without a member, before /healthz/consumption fails"},
	}, c.consumerSettings()...)
}

const fileSuffix = "-file"

// AddFlags adds the flags of the sections to a command. Their values are read
// by Load.
func AddFlags(fs *pflag.FlagSet, sections ...Section) {
	addFlags(fs, func(s setting) bool { return contains(sections, s.section) })
}

// AddSettingFlags adds the flags of single settings, named as their flags are, to a
// command that needs no more of their sections.
func AddSettingFlags(fs *pflag.FlagSet, names ...string) {
	addFlags(fs, func(s setting) bool { return slices.Contains(names, s.name) })
}

func addFlags(fs *pflag.FlagSet, wanted func(setting) bool) {
	defaults := Default()
	for _, s := range defaults.settings() {
		if !wanted(s) {
			continue
		}
		if !s.secret {
			flag := fs.VarPF(s.value, s.name, "", s.usage+" ["+s.env+"]")
			if _, ok := s.value.(*boolean); ok {
				flag.NoOptDefVal = "true"
			}
		}
		if s.fileVariant {
			fs.String(s.name+fileSuffix, "", "file that holds the "+s.name+" ["+s.env+"_FILE]")
		}
	}
}

func contains(sections []Section, section Section) bool {
	for _, s := range sections {
		if s == section {
			return true
		}
	}
	return len(sections) == 0
}
