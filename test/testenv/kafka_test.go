//go:build unix

package testenv_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/orderprojector/orderprojector/test/testenv"
)

func client(t *testing.T, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.RetryTimeout(10 * time.Second), kgo.DialTimeout(2 * time.Second)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func produce(t *testing.T, c *kgo.Client, topic, value string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := c.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte(value)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// consume returns the first n values of a topic's only partition.
func consume(t *testing.T, brokers []string, topic string, n int) []string {
	t.Helper()
	c := client(t, kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(topic))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var values []string
	for len(values) < n {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			t.Fatalf("after %d of %d records: %v", len(values), n, err)
		}
		fetches.EachRecord(func(r *kgo.Record) { values = append(values, string(r.Value)) })
	}
	return values
}

func TestSharedKafka(t *testing.T) {
	topic := testenv.Topic(t, 3, "retention.ms=3600000")
	if again := testenv.Topic(t, 1); again == topic {
		t.Fatal("two topics of one name")
	}
	admin := testenv.Admin(t, testenv.SharedKafka(t))
	configs, err := admin.DescribeTopicConfigs(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range configs[0].Configs {
		if c.Key == "retention.ms" && c.MaybeValue() != "3600000" {
			t.Errorf("retention.ms is %q", c.MaybeValue())
		}
	}
}

func TestOffsetSampler(t *testing.T) {
	brokers := testenv.SharedKafka(t)
	topic, group := testenv.Topic(t, 1), testenv.Name(t)
	admin := testenv.Admin(t, brokers)
	commit := func(at int64) {
		t.Helper()
		var offsets kadm.Offsets
		offsets.AddOffset(topic, 0, at, -1)
		if err := admin.CommitAllOffsets(t.Context(), group, offsets); err != nil {
			t.Fatal(err)
		}
	}
	fake := &recorder{TB: t}
	sampler := testenv.StartOffsetSampler(fake, brokers, group, topic)
	reaches := func(at int64) {
		t.Helper()
		testenv.Await(t, 10*time.Second, func() (bool, string) { return sampler.Latest()[0] == at, "offset not sampled" })
	}
	commit(5)
	reaches(5)
	commit(9)
	reaches(9)
	sampler.Forget()
	commit(7)
	reaches(7)
	if fake.errors() != 0 || sampler.Samples() == 0 {
		t.Fatalf("%d errors in %d samples although nothing went back unannounced", fake.errors(), sampler.Samples())
	}
	commit(6)
	reaches(6)
	if fake.errors() != 1 {
		t.Fatalf("%d errors after an offset went back", fake.errors())
	}
}

func TestKafkaOutlivesCrashesAndPauses(t *testing.T) {
	k := testenv.StartKafka(t, testenv.KafkaConfig{Proxied: true, Secure: true})
	topic := testenv.TopicOn(t, k.Brokers(), 1)
	direct := client(t, kgo.SeedBrokers(k.Brokers()...))
	produce(t, direct, topic, "1")

	t.Run("crash", func(t *testing.T) {
		k.Kill()
		if err := client(t, kgo.SeedBrokers(k.Brokers()...), kgo.RetryTimeout(time.Second)).Ping(t.Context()); err == nil {
			t.Fatal("a killed broker answers")
		}
		if err := k.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		produce(t, direct, topic, "2")
	})
	t.Run("pause", func(t *testing.T) {
		if err := k.Pause(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if err := direct.Ping(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("a paused broker answers: %v", err)
		}
		if err := k.Resume(); err != nil {
			t.Fatal(err)
		}
		produce(t, direct, topic, "3")
	})
	t.Run("proxy", func(t *testing.T) {
		c := client(t, kgo.SeedBrokers(k.Proxy().Addr()))
		produce(t, c, topic, "4")
		k.Proxy().Cut()
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if err := c.Ping(ctx); err == nil {
			t.Fatal("the broker answers although the proxy is cut")
		}
		k.Proxy().Heal()
		produce(t, c, topic, "5")
	})
	t.Run("secure", func(t *testing.T) {
		secure := k.Secure()
		user := scram.Auth{User: testenv.SASLUser, Pass: testenv.SASLPassword}
		for name, c := range map[string]struct {
			protocol  string
			mechanism sasl.Mechanism
		}{
			"PLAIN":         {"SASL_PLAINTEXT", plain.Auth{User: testenv.SASLUser, Pass: testenv.SASLPassword}.AsMechanism()},
			"SCRAM-SHA-256": {"SASL_SSL", user.AsSha256Mechanism()},
			"SCRAM-SHA-512": {"SASL_PLAINTEXT", user.AsSha512Mechanism()},
			"OAUTHBEARER":   {"SASL_SSL", oauth.Auth{Token: testenv.UnsecuredToken(time.Hour)}.AsMechanism()},
			"TLS":           {"SSL", nil},
		} {
			opts := []kgo.Opt{kgo.SeedBrokers(secure.Brokers(c.protocol)...)}
			if c.mechanism != nil {
				opts = append(opts, kgo.SASL(c.mechanism))
			}
			if c.protocol != "SASL_PLAINTEXT" {
				opts = append(opts, kgo.DialTLSConfig(tlsConfig(t, secure)))
			}
			if err := client(t, opts...).Ping(t.Context()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		wrong := plain.Auth{User: testenv.SASLUser, Pass: "guessed"}.AsMechanism()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if err := client(t, kgo.SeedBrokers(secure.Brokers("SASL_PLAINTEXT")...), kgo.SASL(wrong)).Ping(ctx); err == nil {
			t.Error("a wrong password was accepted")
		}
	})
	if err := k.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := consume(t, k.Brokers(), topic, 5)
	if len(got) != 5 || got[4] != "5" {
		t.Fatalf("records %q", got)
	}
}

func tlsConfig(t *testing.T, s *testenv.SecureListeners) *tls.Config {
	t.Helper()
	ca, err := os.ReadFile(s.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		t.Fatal("no certificate in CAFile")
	}
	pair, err := tls.LoadX509KeyPair(s.CertFile, s.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
}
