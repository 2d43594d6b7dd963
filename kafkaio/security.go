package kafkaio

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

func (c ClientConfig) securityOptions(logger *slog.Logger) ([]kgo.Opt, error) {
	var opts []kgo.Opt
	if c.SecurityProtocol.tls() {
		dialer := &tlsDialer{caFile: c.CAFile, certFile: c.CertFile, keyFile: c.KeyFile, logger: logger}
		if err := dialer.reload(); err != nil {
			return nil, fmt.Errorf("kafka TLS files: %w", err)
		}
		opts = append(opts, kgo.Dialer(dialer.dial))
	}
	if !c.SecurityProtocol.sasl() {
		return opts, nil
	}
	if c.SecurityProtocol == SASLPlaintext && (c.SASLMechanism == Plain || c.SASLMechanism == OAuthBearer) {
		logger.Warn("kafka credentials are sent over an unencrypted connection",
			"security_protocol", c.SecurityProtocol, "sasl_mechanism", c.SASLMechanism, "hint", "use SASL_SSL")
	}
	return append(opts, kgo.SASL(c.saslMechanism(logger))), nil
}

func (c ClientConfig) saslMechanism(logger *slog.Logger) sasl.Mechanism {
	switch c.SASLMechanism {
	case ScramSHA256:
		return scram.Auth{User: c.Username, Pass: c.Password.Reveal()}.AsSha256Mechanism()
	case ScramSHA512:
		return scram.Auth{User: c.Username, Pass: c.Password.Reveal()}.AsSha512Mechanism()
	case OAuthBearer:
		source := c.OAuth.source(logger)
		return oauth.Oauth(func(ctx context.Context) (oauth.Auth, error) {
			ctx, cancel := context.WithTimeout(ctx, tokenTimeout)
			defer cancel()
			token, err := source.token(ctx)
			if err != nil {
				return oauth.Auth{}, fmt.Errorf("getting an OAUTHBEARER token: %w", err)
			}
			return oauth.Auth{Token: token}, nil
		})
	default:
		return plain.Auth{User: c.Username, Pass: c.Password.Reveal()}.AsMechanism()
	}
}

// tlsDialer reads the certificate files again for every connection, so that
// rotated certificates are picked up. Files that cannot be read at that moment
// (a rotation in progress) leave the previous ones in use.
type tlsDialer struct {
	caFile, certFile, keyFile string
	logger                    *slog.Logger

	mu     sync.Mutex
	config *tls.Config
}

func (d *tlsDialer) reload() error {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if d.caFile != "" {
		pem, err := os.ReadFile(d.caFile)
		if err != nil {
			return err
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return fmt.Errorf("%s holds no PEM certificate", d.caFile)
		}
		config.RootCAs = pool
	}
	if d.certFile != "" {
		cert, err := tls.LoadX509KeyPair(d.certFile, d.keyFile)
		if err != nil {
			return err
		}
		config.Certificates = []tls.Certificate{cert}
	}
	d.mu.Lock()
	d.config = config
	d.mu.Unlock()
	return nil
}

func (d *tlsDialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if err := d.reload(); err != nil {
		d.logger.Warn("kafka TLS files cannot be read, using the previous ones", "error", err)
	}
	d.mu.Lock()
	config := d.config.Clone()
	d.mu.Unlock()
	// The deadline covers the handshake too: a listener that accepts and then
	// says nothing must not hold the dial.
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := (&tls.Dialer{NetDialer: &net.Dialer{KeepAlive: 15 * time.Second}, Config: config}).DialContext(ctx, network, address)
	if err != nil {
		return nil, explainTLS(err)
	}
	return conn, nil
}

func explainTLS(err error) error {
	var unknown x509.UnknownAuthorityError
	if errors.As(err, &unknown) {
		return fmt.Errorf("%w (set KAFKA_SSL_CA_LOCATION to the authority that signed the broker's certificate)", err)
	}
	var header tls.RecordHeaderError
	if errors.As(err, &header) {
		return fmt.Errorf("%w (does the broker listen with TLS on this port?)", err)
	}
	return err
}
