package config

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// The choices of the enumerated settings.
var (
	securityProtocols = []string{"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"}
	saslMechanisms    = []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"}
	groupProtocols    = []string{"classic", "consumer"}
	onDataLoss        = []string{"halt", "exit", "continue"}
	outboxFormats     = []string{"json", "cloudevents"}
	logFormats        = []string{"text", "json"}
)

var kafkaName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)

// validation collects problems.
type validation struct {
	config   *Config
	problems []error
}

// Validate checks the settings of the given sections (all, when none is
// given): each alone, then against each other. It returns every problem,
// joined, each an *Error that names setting and value.
func (c *Config) Validate(sections ...Section) error {
	v := &validation{config: c}
	for _, check := range []struct {
		section Section
		run     func()
	}{
		{SectionKafka, v.kafka}, {SectionGroup, v.group}, {SectionDatabase, v.database},
		{SectionProjection, v.projection}, {SectionOutbox, v.outbox}, {SectionLoyalty, v.loyalty}, {SectionNotifications, v.notifications}, {SectionHTTP, v.http}, {SectionLog, v.log}, {SectionProcess, v.process},
	} {
		if contains(sections, check.section) {
			check.run()
		}
	}
	if named(sections, SectionNotifications) {
		v.webhook()
	}
	return errors.Join(v.problems...)
}

func (v *validation) fail(name, value, problem, advice string) {
	v.problems = append(v.problems, &Error{Name: name, Value: value, Origin: v.config.Origin(name), Problem: problem, Advice: advice})
}

func (v *validation) oneOf(name, value string, choices []string) bool {
	if slices.Contains(choices, value) {
		return true
	}
	v.fail(name, value, "is not one of "+strings.Join(choices, ", "), "")
	return false
}

func (v *validation) between(name string, value, low, high int64, show func(int64) string) {
	if value < low || value > high {
		v.fail(name, show(value), fmt.Sprintf("is not between %s and %s", show(low), show(high)), "")
	}
}

func (v *validation) timeout(name string, value, low, high time.Duration) {
	v.between(name, int64(value), int64(low), int64(high), func(n int64) string { return time.Duration(n).String() })
}

func (v *validation) count(name string, value, low, high int) {
	v.between(name, int64(value), int64(low), int64(high), func(n int64) string { return fmt.Sprint(n) })
}

func (v *validation) size(name string, value, low, high ByteSize) {
	v.between(name, int64(value), int64(low), int64(high), func(n int64) string { return ByteSize(n).String() })
}

func (v *validation) kafka() {
	k := v.config.Kafka
	if len(k.BootstrapServers) == 0 {
		v.fail("kafka-bootstrap-servers", "", "is not set", "set KAFKA_BOOTSTRAP_SERVERS or --kafka-bootstrap-servers, such as localhost:9092")
	}
	for _, server := range k.BootstrapServers {
		if _, _, err := net.SplitHostPort(server); err != nil {
			v.fail("kafka-bootstrap-servers", server, "is not host:port", "separate several servers with commas; the port is often 9092")
		}
	}
	if v.oneOf("kafka-security-protocol", k.SecurityProtocol, securityProtocols) {
		v.tls(strings.HasSuffix(k.SecurityProtocol, "SSL"))
		v.sasl(strings.HasPrefix(k.SecurityProtocol, "SASL"))
	}
}

func (v *validation) tls(on bool) {
	protocol, tls := v.config.Kafka.SecurityProtocol, v.config.Kafka.TLS
	for name, value := range map[string]string{
		"kafka-ssl-ca-location": tls.CALocation, "kafka-ssl-certificate-location": tls.CertificateLocation, "kafka-ssl-key-location": tls.KeyLocation,
	} {
		if value != "" && !on {
			v.fail(name, value, "is set, but kafka-security-protocol is "+protocol, "use SSL or SASL_SSL")
		}
	}
	if (tls.CertificateLocation == "") != (tls.KeyLocation == "") {
		v.fail("kafka-ssl-certificate-location", tls.CertificateLocation, "and kafka-ssl-key-location go together", "set both or none")
	}
}

func (v *validation) sasl(on bool) {
	protocol, sasl := v.config.Kafka.SecurityProtocol, v.config.Kafka.SASL
	if !on {
		if sasl.Mechanism != "" {
			v.fail("kafka-sasl-mechanism", sasl.Mechanism, "is set, but kafka-security-protocol is "+protocol, "use SASL_SSL or SASL_PLAINTEXT")
		}
		return
	}
	if !v.oneOf("kafka-sasl-mechanism", sasl.Mechanism, saslMechanisms) {
		return
	}
	if sasl.Mechanism == "OAUTHBEARER" {
		v.oauth(sasl.OAuth)
		return
	}
	if sasl.Username == "" {
		v.fail("kafka-sasl-username", "", "is not set, and "+sasl.Mechanism+" needs one", "")
	}
	if sasl.Password.IsZero() {
		v.fail("kafka-sasl-password", "", "is not set, and "+sasl.Mechanism+" needs one", "set KAFKA_SASL_PASSWORD or KAFKA_SASL_PASSWORD_FILE")
	}
}

func (v *validation) oauth(o OAuth) {
	const file, endpoint = "kafka-sasl-oauthbearer-token-file", "kafka-sasl-oauthbearer-token-endpoint-url"
	switch {
	case o.TokenFile == "" && o.TokenURL == "":
		v.fail(file, "", "is not set, nor is "+endpoint+", and OAUTHBEARER needs one of them", "")
	case o.TokenFile != "" && o.TokenURL != "":
		v.fail(file, o.TokenFile, "and "+endpoint+" exclude each other", "")
	case o.TokenURL != "":
		if u, err := url.Parse(o.TokenURL); err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
			v.fail(endpoint, "", "is not an http or https URL", "")
		}
		if o.ClientID == "" {
			v.fail("kafka-sasl-oauthbearer-client-id", "", "is not set, and the token endpoint needs one", "")
		}
		if o.ClientSecret.IsZero() {
			v.fail("kafka-sasl-oauthbearer-client-secret", "", "is not set, and the token endpoint needs one", "")
		}
	}
}

func (v *validation) group() {
	k := v.config.Kafka
	if !kafkaName.MatchString(k.Topic) || k.Topic == "." || k.Topic == ".." {
		v.fail("topic", k.Topic, "is not a topic name", "letters, digits, '.', '_' and '-', at most 249")
	}
	if k.Group == "" {
		v.fail("group", "", "is empty", "")
	}
	if k.InstanceID != "" && !kafkaName.MatchString(k.InstanceID) {
		v.fail("instance-id", k.InstanceID, "is not a group instance ID", "letters, digits, '.', '_' and '-', at most 249")
	}
	v.oneOf("on-data-loss", k.OnDataLoss, onDataLoss)
	if v.oneOf("group-protocol", k.GroupProtocol, groupProtocols) && k.GroupProtocol == "consumer" && v.config.Explicit("session-timeout") {
		v.fail("session-timeout", k.SessionTimeout.String(), "cannot be set with group-protocol consumer", "there the group's own group.consumer.session.timeout.ms on the broker decides")
	}
	v.timeout("session-timeout", k.SessionTimeout, time.Second, 30*time.Minute)
	switch topic := k.DeadLetters(); {
	case topic == "":
	case topic == k.Topic:
		v.fail("dead-letter-topic", k.DeadLetterTopic, "is the topic with the events", "dead letters would be consumed again, for ever")
	case !kafkaName.MatchString(topic) || topic == "." || topic == "..":
		v.fail("dead-letter-topic", topic, "is not a topic name", "letters, digits, '.', '_' and '-', at most 249")
	}
}

func (v *validation) database() {
	d := v.config.Database
	if d.URL.IsZero() && !d.fromPGEnv {
		v.fail("database-url", "", "is not set", "set DATABASE_URL, such as postgres://user@localhost:5432/orders, or PGHOST and its like")
	} else if db, err := pgxpool.ParseConfig(d.URL.Reveal()); err != nil {
		// The parser's own message may quote the password.
		v.fail("database-url", d.URL.String(), "is not a PostgreSQL connection string", "special characters in user or password are written percent-encoded; files that it names must exist")
	} else if mode := db.ConnConfig.DefaultQueryExecMode; mode != pgx.QueryExecModeCacheStatement && mode != pgx.QueryExecModeCacheDescribe {
		// Batches are sent in binary formats, which takes knowing the types, and in one round trip, which a pooler keeps together.
		v.fail("database-url", d.URL.String(), "asks for default_query_exec_mode="+strings.ReplaceAll(mode.String(), " ", "_"), "leave it out, or behind a pooler use cache_describe")
	}
	v.timeout("database-connect-timeout", d.ConnectTimeout, 100*time.Millisecond, time.Minute)
	v.timeout("database-statement-timeout", d.StatementTimeout, 100*time.Millisecond, time.Hour)
	v.timeout("database-lock-timeout", d.LockTimeout, 10*time.Millisecond, time.Hour)
	v.timeout("database-idle-in-transaction-timeout", d.IdleInTransactionTimeout, time.Second, time.Hour)
	if d.LockTimeout > d.StatementTimeout {
		v.fail("database-lock-timeout", d.LockTimeout.String(), "is longer than database-statement-timeout "+d.StatementTimeout.String(), "a statement that waits for a lock would end as a statement that takes too long")
	}
}

func (v *validation) projection() {
	v.count("writers", v.config.Database.Writers, 1, 64)
	p := v.config.Projection
	v.count("batch-max-records", p.BatchMaxRecords, 1, 1_000_000)
	v.size("batch-max-bytes", p.BatchMaxBytes, 1<<10, 1<<30)
	v.size("cache-bytes", p.CacheBytes, 0, 1<<40)
	v.timeout("gap-deadline", p.GapDeadline, time.Second, 365*24*time.Hour)
	v.timeout("dead-letter-deadline", p.DeadLetterDeadline, time.Second, 365*24*time.Hour)
}

func (v *validation) outbox() {
	o := v.config.Outbox
	v.oneOf("outbox-format", o.Format, outboxFormats)
	if _, err := url.Parse(o.Source); err != nil || o.Source == "" {
		v.fail("outbox-source", o.Source, "is not a URI reference", "such as /orders, or https://shop.example/orders")
	}
	v.timeout("outbox-poll-interval", o.PollInterval, 10*time.Millisecond, time.Minute)
}

func (v *validation) http() {
	if _, port, err := net.SplitHostPort(v.config.HTTP.Address); err != nil || port == "" {
		v.fail("http-address", v.config.HTTP.Address, "is not host:port", "such as 127.0.0.1:8080, or :8080 for every interface")
	}
}

func (v *validation) log() { v.oneOf("log-format", v.config.Log.Format, logFormats) }

func (v *validation) process() {
	v.size("memory-limit", v.config.MemoryLimit, 0, 1<<50)
	v.timeout("shutdown-grace", v.config.ShutdownGrace, 0, 10*time.Minute)
	v.timeout("stall-limit", v.config.StallLimit, time.Second, 24*time.Hour)
}
