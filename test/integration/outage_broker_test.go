//go:build unix

package integration_test

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/generate"
	"github.com/orderprojector/orderprojector/test/testenv"
)

// What happens to the broker, and on the way to it. One broker serves the parts one after the other.
func TestOutageBroker(t *testing.T) {
	t.Parallel()
	k := testenv.StartKafka(t, testenv.KafkaConfig{Secure: true, Proxied: true})
	t.Run("secure listeners", func(t *testing.T) { secureListeners(t, k) })
	t.Run("wrong credentials", func(t *testing.T) { wrongCredentials(t, k) })
	t.Run("black hole", func(t *testing.T) { brokerBlackHole(t, k) })
	t.Run("restart", func(t *testing.T) { brokerRestart(t, k) })
}

// secureListeners projects an event over each way to authenticate.
func secureListeners(t *testing.T, k *testenv.Kafka) {
	s := newStage(t, stageConfig{Brokers: k.Brokers()})
	s.watchRows()
	user := func(c *config.Config) {
		c.Kafka.SASL.Username = testenv.SASLUser
		must(t, c.Kafka.SASL.Password.Set(testenv.SASLPassword))
	}
	s.produce(created("o"))
	for i, way := range []struct {
		protocol, mechanism string
		more                func(*config.Config)
	}{
		{"SSL", "", func(c *config.Config) {
			c.Kafka.TLS.CertificateLocation, c.Kafka.TLS.KeyLocation = k.Secure().CertFile, k.Secure().KeyFile
		}},
		{"SASL_PLAINTEXT", "PLAIN", user},
		{"SASL_SSL", "SCRAM-SHA-256", user},
		{"SASL_SSL", "SCRAM-SHA-512", user},
		{"SASL_SSL", "OAUTHBEARER", func(c *config.Config) { c.Kafka.SASL.OAuth.TokenFile = tokenFile(t) }},
	} {
		p := s.start(func(c *config.Config) {
			c.Kafka.BootstrapServers = k.Secure().Brokers(way.protocol)
			c.Kafka.SecurityProtocol, c.Kafka.SASL.Mechanism = way.protocol, way.mechanism
			if strings.HasSuffix(way.protocol, "SSL") {
				c.Kafka.TLS.CALocation = k.Secure().CAFile
			}
			way.more(c)
		})
		s.produce(amended("o", int64(i+2), "20.00"))
		s.awaitDrained()
		p.Stop()
	}
	s.judge()
}

// tokenFile holds a token that nobody signed, which the test's broker accepts.
func tokenFile(t testing.TB) string {
	t.Helper()
	part := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	now := time.Now().Unix()
	token := part(`{"alg":"none"}`) + "." + part(fmt.Sprintf(`{"sub":%q,"iat":%d,"exp":%d}`, testenv.SASLUser, now, now+3600)) + "."
	path := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(path, []byte(token), 0o600))
	return path
}

// wrongCredentials wants clear words, and a program that waits for somebody to correct them on the other side.
func wrongCredentials(t *testing.T, k *testenv.Kafka) {
	s := newStage(t, stageConfig{Brokers: k.Brokers()})
	secure := func(protocol string, env ...string) []string {
		return append(s.env(), append(env, "KAFKA_SECURITY_PROTOCOL="+protocol,
			"KAFKA_BOOTSTRAP_SERVERS="+strings.Join(k.Secure().Brokers(protocol), ","))...)
	}
	for _, c := range []struct {
		env  []string
		want string
	}{
		{secure("SASL_PLAINTEXT", "KAFKA_SASL_MECHANISM=PLAIN", "KAFKA_SASL_USERNAME="+testenv.SASLUser, "KAFKA_SASL_PASSWORD=guessed"), "SASL_AUTHENTICATION_FAILED"},
		{secure("SASL_SSL", "KAFKA_SASL_MECHANISM=SCRAM-SHA-512", "KAFKA_SASL_USERNAME="+testenv.SASLUser, "KAFKA_SASL_PASSWORD=guessed", "KAFKA_SSL_CA_LOCATION="+k.Secure().CAFile), "SASL_AUTHENTICATION_FAILED"},
		{secure("SSL"), "certificate signed by unknown authority"},
	} {
		p := &process{Process: testenv.StartProcess(t, testenv.ProcessConfig{Args: []string{"run"}, Env: c.env}), t: t}
		p.AwaitOutput(patience, c.want)
		testenv.Await(t, patience, func() (bool, string) {
			status, body := get(p.HTTPAddr(), "/healthz/consumption")
			return status == 503 && strings.Contains(body, c.want), fmt.Sprint(status, body)
		})
		if strings.Contains(p.Stderr(), "guessed") {
			t.Error("the password is logged")
		}
		if code := p.Stop(10 * time.Second); code != 0 {
			t.Errorf("exit code %d", code)
		}
		generate := testenv.StartProcess(t, testenv.ProcessConfig{Args: []string{"generate", "--topic", s.topic, "--orders", "1"}, Env: c.env})
		if code := generate.Wait(patience); code != 1 || !strings.Contains(generate.Stderr(), c.want) {
			t.Errorf("generate: exit code %d, %s", code, generate.Stderr())
		}
	}
}

// brokerBlackHole loses what goes between program and broker: for less than a session,
// for longer, and for good on the connections that are there.
func brokerBlackHole(t *testing.T, k *testenv.Kafka) {
	seed := randomSeed(t)
	s := newStage(t, stageConfig{Brokers: k.Brokers(), Partitions: 3})
	s.watchRows()
	s.programBrokers = []string{k.Proxy().Addr()}
	p := s.spawn("--session-timeout=6s")
	traffic := s.flow(generate.Config{Seed: seed, Orders: 50_000, Rates: generate.Faulty()}, 300)
	awaitOwned(t, p, 3)
	s.awaitMarks(patience, after(s.ends()))
	works := func(what string) {
		t.Helper()
		took := s.awaitMarks(2*recovery, after(s.ends()))
		t.Logf("works again %v after %s", took, what)
		if took > recovery {
			t.Errorf("works again %v after %s", took, what)
		}
	}
	for _, length := range []time.Duration{3 * time.Second, 9 * time.Second} {
		k.Proxy().Swallow(testenv.BothWays)
		awaitTime(length)
		k.Proxy().Heal()
		works(fmt.Sprintf("%v of a black hole", length))
	}
	k.Proxy().Silence()
	works("its connections fell silent")
	traffic.stop()
	s.awaitDrained()
	s.judge()
}

// brokerRestart ends the broker three times under load, in order and as a crash does. Nothing of it is an
// event's fault, and the group settles each time (B35 c).
func brokerRestart(t *testing.T, k *testenv.Kafka) {
	seed := randomSeed(t)
	s := newStage(t, stageConfig{Brokers: k.Brokers(), Partitions: 3})
	s.watchRows()
	p := s.spawn()
	traffic := s.flow(generate.Config{Seed: seed, Orders: 50_000}, 300)
	awaitOwned(t, p, 3)
	s.awaitMarks(patience, after(s.ends()))
	for _, end := range []func(){func() { k.Stop(t.Context()) }, k.Kill, func() { k.Stop(t.Context()) }} {
		rebalances, _ := metricOf(p, "orderprojector_rebalances_total")
		end()
		must(t, k.Start(t.Context()))
		took := s.awaitMarks(2*recovery, after(s.ends()))
		t.Logf("works again after %v", took)
		if took > recovery {
			t.Errorf("works again %v after the broker is there", took)
		}
		if now, _ := metricOf(p, "orderprojector_rebalances_total"); now > rebalances+2 {
			t.Errorf("%v rebalances after one restart", now-rebalances)
		}
	}
	traffic.stop()
	s.awaitDrained()
	s.noLetters()
	s.judge()
}
