package kafkaio

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/plugin/kprom"
)

// Limits of one client. Together they bound what a response can cost in
// memory and how long a call can hang.
const (
	dialTimeout = 5 * time.Second
	// A connection that fell silent is found out by the first request that uses
	// it. To fetch again can take three of them one after the other: the fetch, and
	// the lookups of the topic at two brokers.
	requestTimeout = 3 * time.Second // on top of the time that a request itself may wait on the broker
	retryTimeout   = 10 * time.Second
	commitTimeout  = 5 * time.Second
	tokenTimeout   = 5 * time.Second // to get an OAuth token
	maxBackoff     = 2 * time.Second

	// callTimeout is the deadline of one administrative call, retries included.
	callTimeout = 10 * time.Second

	fetchMaxBytes          = 2 << 20 // on the wire; see fetcher.adapt for what it becomes in memory
	fetchMaxPartitionBytes = 512 << 10
	brokerMaxReadBytes     = 64 << 20
	maxDecompressBytes     = 64 << 20
)

// SecurityProtocol says how connections are encrypted and authenticated. The
// values are Kafka's own.
type SecurityProtocol string

// The security protocols.
const (
	Plaintext     SecurityProtocol = "PLAINTEXT"
	SSL           SecurityProtocol = "SSL"
	SASLPlaintext SecurityProtocol = "SASL_PLAINTEXT"
	SASLSSL       SecurityProtocol = "SASL_SSL"
)

func (p SecurityProtocol) tls() bool  { return p == SSL || p == SASLSSL }
func (p SecurityProtocol) sasl() bool { return p == SASLPlaintext || p == SASLSSL }

// SASLMechanism says how a client proves who it is. The values are Kafka's own.
type SASLMechanism string

// The SASL mechanisms.
const (
	Plain       SASLMechanism = "PLAIN"
	ScramSHA256 SASLMechanism = "SCRAM-SHA-256"
	ScramSHA512 SASLMechanism = "SCRAM-SHA-512"
	OAuthBearer SASLMechanism = "OAUTHBEARER"
)

// ClientConfig is what every Kafka client of the program needs to know. The
// zero value with SeedBrokers set connects in plain text without
// authentication.
type ClientConfig struct {
	// SeedBrokers are the brokers to ask first, as host:port.
	SeedBrokers []string
	// ClientID names the client in the broker's logs and quotas. Default: orderprojector.
	ClientID string

	// SecurityProtocol defaults to PLAINTEXT.
	SecurityProtocol SecurityProtocol
	// SASLMechanism is required with the SASL_ protocols.
	SASLMechanism SASLMechanism
	// Username and Password are for PLAIN and SCRAM.
	Username string
	Password Secret
	// OAuth says where OAUTHBEARER tokens come from.
	OAuth OAuthConfig

	// CAFile holds the certificates to trust (PEM); empty means the system's.
	CAFile string
	// CertFile and KeyFile hold the client's certificate (PEM), for mutual
	// TLS. All three files are read again for every new connection, so
	// rotated certificates need no restart.
	CertFile string
	KeyFile  string

	// ClientMetrics takes the client library's own metrics (connections, bytes,
	// requests) of a consumer's clients. Nil means they are not kept. It should be a registry of its own.
	ClientMetrics prometheus.Registerer
}

// instrument adds the client library's metrics to a client, under a name of its own.
func (c ClientConfig) instrument(opts []kgo.Opt, subsystem string) []kgo.Opt {
	if c.ClientMetrics == nil {
		return opts
	}
	return append(opts, kgo.WithHooks(kprom.NewMetrics("orderprojector",
		kprom.Subsystem(subsystem), kprom.Registerer(replacing{c.ClientMetrics}))))
}

// replacing registers the metrics of a session's client in place of those of the
// session before, whose client may not have managed to close in time.
type replacing struct{ prometheus.Registerer }

func (r replacing) MustRegister(collectors ...prometheus.Collector) {
	for _, c := range collectors {
		var taken prometheus.AlreadyRegisteredError
		if err := r.Register(c); errors.As(err, &taken) {
			r.Unregister(taken.ExistingCollector)
			_ = r.Register(c)
		}
	}
}

func (c ClientConfig) withDefaults() ClientConfig {
	if c.ClientID == "" {
		c.ClientID = "orderprojector"
	}
	if c.SecurityProtocol == "" {
		c.SecurityProtocol = Plaintext
	}
	return c
}

// Validate names every field that is wrong.
func (c ClientConfig) Validate() error {
	c = c.withDefaults()
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	if len(c.SeedBrokers) == 0 {
		bad("no bootstrap servers (set KAFKA_BOOTSTRAP_SERVERS to host:port, several separated by commas)")
	}
	for _, seed := range c.SeedBrokers {
		if err := validateHostPort(seed); err != nil {
			bad("bootstrap server %q: %w", seed, err)
		}
	}
	protocols := []SecurityProtocol{Plaintext, SSL, SASLPlaintext, SASLSSL}
	if !slices.Contains(protocols, c.SecurityProtocol) {
		bad("security protocol %q: must be PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL", c.SecurityProtocol)
	}
	switch {
	case !c.SecurityProtocol.sasl():
		if c.SASLMechanism != "" {
			bad("SASL mechanism %s needs security protocol SASL_PLAINTEXT or SASL_SSL, not %s", c.SASLMechanism, c.SecurityProtocol)
		}
	case c.SASLMechanism == OAuthBearer:
		if err := c.OAuth.validate(); err != nil {
			bad("OAUTHBEARER: %w", err)
		}
	case slices.Contains([]SASLMechanism{Plain, ScramSHA256, ScramSHA512}, c.SASLMechanism):
		if c.Username == "" || c.Password == "" {
			bad("SASL mechanism %s needs a username and a password", c.SASLMechanism)
		}
	default:
		bad("SASL mechanism %q: must be PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER", c.SASLMechanism)
	}
	if !c.SecurityProtocol.tls() && (c.CAFile != "" || c.CertFile != "" || c.KeyFile != "") {
		bad("certificate files are set but security protocol %s does not use TLS", c.SecurityProtocol)
	}
	if (c.CertFile == "") != (c.KeyFile == "") {
		bad("a client certificate and its key go together: set both files or neither")
	}
	return errors.Join(errs...)
}

func validateHostPort(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("must be host:port: %w", err)
	}
	if host == "" || port == "" || strings.ContainsAny(host, " \t") {
		return errors.New("must be host:port")
	}
	return nil
}

// Options returns the kgo options that all clients of this configuration
// share. It fails when the configuration is invalid or a certificate file
// cannot be used.
func (c ClientConfig) Options(logger *slog.Logger) ([]kgo.Opt, error) {
	c = c.withDefaults()
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("kafka client configuration: %w", err)
	}
	opts := []kgo.Opt{
		kgo.SeedBrokers(c.SeedBrokers...),
		kgo.ClientID(c.ClientID),
		kgo.SoftwareNameAndVersion("orderprojector", softwareVersion()),
		kgo.WithLogger(newClientLogger(logger)),
		kgo.DialTimeout(dialTimeout),
		kgo.RequestTimeoutOverhead(requestTimeout),
		kgo.RetryTimeout(retryTimeout),
		kgo.RetryBackoffFn(backoff),
		kgo.MetadataMaxAge(10 * time.Second), // added partitions and moved leaders are seen within this time
		kgo.MetadataMinAge(500 * time.Millisecond),
		kgo.FetchMaxBytes(fetchMaxBytes),
		kgo.FetchMaxPartitionBytes(fetchMaxPartitionBytes),
		kgo.BrokerMaxReadBytes(brokerMaxReadBytes),
		kgo.MaxDecompressBatchBytes(maxDecompressBytes),
		kgo.DisableClientMetrics(),
	}
	security, err := c.securityOptions(logger)
	if err != nil {
		return nil, err
	}
	return append(opts, security...), nil
}

// backoff is the wait after the given number of failures in a row.
func backoff(fails int) time.Duration {
	wait := maxBackoff
	if fails < 5 {
		wait = min(maxBackoff, 100*time.Millisecond<<max(fails, 0))
	}
	return wait/2 + rand.N(wait/2+1)
}

// softwareVersion is the module version in the form that Kafka accepts.
func softwareVersion() string {
	version := "devel"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		version = info.Main.Version
	}
	clean := strings.Map(func(r rune) rune {
		if r == '.' || r == '-' || (r >= '0' && r <= '9') || (r >= 'a' && r <= 'z') || (r >= 'A' && r <= 'Z') {
			return r
		}
		return '-'
	}, version)
	if clean = strings.Trim(clean, ".-"); clean == "" {
		return "devel"
	}
	return clean
}
