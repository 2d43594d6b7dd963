package kafkaio_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/orderprojector/orderprojector/kafkaio"
	"github.com/orderprojector/orderprojector/kafkaio/kafkatest"
	"github.com/orderprojector/orderprojector/projection"
)

func TestClientConfigValidate(t *testing.T) {
	seeds := []string{"localhost:9092"}
	for _, tc := range []struct {
		name   string
		config kafkaio.ClientConfig
		want   string // part of the error, empty for valid
	}{
		{"minimal", kafkaio.ClientConfig{SeedBrokers: seeds}, ""},
		{"no seeds", kafkaio.ClientConfig{}, "KAFKA_BOOTSTRAP_SERVERS"},
		{"no port", kafkaio.ClientConfig{SeedBrokers: []string{"localhost"}}, `"localhost": must be host:port`},
		{"protocol", kafkaio.ClientConfig{SeedBrokers: seeds, SecurityProtocol: "TLS"}, `"TLS"`},
		{"mechanism", kafkaio.ClientConfig{SeedBrokers: seeds, SecurityProtocol: "SASL_SSL", SASLMechanism: "GSSAPI"}, `"GSSAPI"`},
		{"mechanism without SASL", kafkaio.ClientConfig{SeedBrokers: seeds, SASLMechanism: "PLAIN"}, "needs security protocol"},
		{"no password", kafkaio.ClientConfig{SeedBrokers: seeds, SecurityProtocol: "SASL_SSL", SASLMechanism: "PLAIN", Username: "u"}, "a username and a password"},
		{"files without TLS", kafkaio.ClientConfig{SeedBrokers: seeds, CAFile: "ca.pem"}, "does not use TLS"},
		{"cert without key", kafkaio.ClientConfig{SeedBrokers: seeds, SecurityProtocol: "SSL", CertFile: "c.pem"}, "go together"},
		{"no token", kafkaio.ClientConfig{SeedBrokers: seeds, SecurityProtocol: "SASL_SSL", SASLMechanism: "OAUTHBEARER"}, "exactly one of"},
		{"token", kafkaio.ClientConfig{SeedBrokers: seeds, SecurityProtocol: "SASL_SSL", SASLMechanism: "OAUTHBEARER",
			OAuth: kafkaio.OAuthConfig{Token: "t"}}, ""},
		{"token URL", kafkaio.ClientConfig{SeedBrokers: seeds, SecurityProtocol: "SASL_SSL", SASLMechanism: "OAUTHBEARER",
			OAuth: kafkaio.OAuthConfig{TokenURL: "ftp://x", ClientID: "i", ClientSecret: "s"}}, "not an http(s) URL"},
	} {
		err := tc.config.Validate()
		switch {
		case tc.want == "" && err != nil:
			t.Errorf("%s: %v", tc.name, err)
		case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
}

func TestConsumerConfigValidate(t *testing.T) {
	err := kafkaio.ConsumerConfig{GroupProtocol: "share", OnDataLoss: "ignore", SessionTimeout: time.Second, HeartbeatInterval: 2 * time.Second, MaxBatchRecords: -1}.Validate()
	if err == nil {
		t.Fatal("valid")
	}
	for _, want := range []string{"no consumer group", "no topic", `"share"`, `"ignore"`, "heartbeat interval", "max batch records"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in %v", want, err)
		}
	}
	if err := (kafkaio.ConsumerConfig{Group: group, Topic: topic}).Validate(); err != nil {
		t.Error(err)
	}
}

func TestSecretsDoNotShow(t *testing.T) {
	const canary = "hunter2-canary"
	config := kafkaio.ClientConfig{
		SeedBrokers: []string{"localhost:1"}, SecurityProtocol: kafkaio.SASLPlaintext, SASLMechanism: kafkaio.Plain,
		Username: "u", Password: canary, OAuth: kafkaio.OAuthConfig{Token: canary, ClientSecret: canary},
	}
	var out bytes.Buffer
	logger := slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug - 8}))
	logger.Info("config", "config", config, "password", config.Password)
	fmt.Fprintf(&out, "%v %+v %#v %s", config, config, config, config.Password)
	if err := json.NewEncoder(&out).Encode(config); err != nil {
		t.Fatal(err)
	}
	if _, err := config.Options(logger); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), canary) {
		t.Errorf("a secret shows: %s", out.String())
	}
	if !strings.Contains(out.String(), "unencrypted connection") {
		t.Error("no warning about PLAIN without TLS")
	}
	if config.Password.Reveal() != canary {
		t.Error("Reveal does not")
	}
}

// certificate writes a self-signed certificate for localhost.
func certificate(t *testing.T, dir, name string) (certFile, keyFile string, pair tls.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
	certFile, keyFile = filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key")
	for file, content := range map[string][]byte{certFile: certPEM, keyFile: keyPEM} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if pair, err = tls.X509KeyPair(certPEM, keyPEM); err != nil {
		t.Fatal(err)
	}
	return certFile, keyFile, pair
}

// produceOne proves that a configuration connects.
func produceOne(t *testing.T, config kafkaio.ClientConfig, patience time.Duration) error {
	t.Helper()
	p, err := kafkaio.NewProducer(config, testLogger(t))
	if err != nil {
		return err
	}
	defer p.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	result := make(chan error, 1)
	p.Produce(ctx, kafkaio.Message{Topic: topic, Key: []byte("k"), Value: []byte("v"), Headers: []projection.Header{{Key: "h", Value: []byte("1")}}},
		func(_ int32, _ int64, err error) { result <- err })
	if err := p.Flush(ctx); err != nil {
		return err
	}
	return <-result
}

func TestMutualTLSAndSCRAM(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	brokerCert, _, brokerPair := certificate(t, dir, "broker")
	clientCert, clientKey, _ := certificate(t, dir, "client")
	otherCert, _, _ := certificate(t, dir, "other")
	clients := x509.NewCertPool()
	pemBytes, err := os.ReadFile(clientCert)
	if err != nil {
		t.Fatal(err)
	}
	clients.AppendCertsFromPEM(pemBytes)
	cluster, err := kfake.NewCluster(
		kfake.NumBrokers(1), kfake.SeedTopics(1, topic),
		kfake.TLS(&tls.Config{Certificates: []tls.Certificate{brokerPair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients}),
		kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-512", "alice", "secret"), kfake.Superuser("PLAIN", "bob", "secret"),
	)
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	good := kafkaio.ClientConfig{
		SeedBrokers: cluster.ListenAddrs(), SecurityProtocol: kafkaio.SASLSSL, SASLMechanism: kafkaio.ScramSHA512,
		Username: "alice", Password: "secret", CAFile: brokerCert, CertFile: clientCert, KeyFile: clientKey,
	}
	if err := produceOne(t, good, patience); err != nil {
		t.Errorf("SCRAM over mutual TLS: %v", err)
	}
	plain := good
	plain.SASLMechanism, plain.Username = kafkaio.Plain, "bob"
	if err := produceOne(t, plain, patience); err != nil {
		t.Errorf("PLAIN over mutual TLS: %v", err)
	}
	wrong := good
	wrong.Password = "guess"
	if err := produceOne(t, wrong, time.Second); err == nil {
		t.Error("a wrong password works")
	}
	untrusted := good
	untrusted.CAFile = otherCert
	if err := produceOne(t, untrusted, time.Second); err == nil {
		t.Error("an unknown authority is trusted")
	}
	anonymous := good
	anonymous.CertFile, anonymous.KeyFile = "", ""
	if err := produceOne(t, anonymous, time.Second); err == nil {
		t.Error("the broker accepted a client without a certificate")
	}
	missing := good
	missing.CAFile = filepath.Join(dir, "nothing.pem")
	if err := produceOne(t, missing, time.Second); err == nil || !strings.Contains(err.Error(), "nothing.pem") {
		t.Errorf("a missing file: %v", err)
	}
}

func TestTokenEndpoint(t *testing.T) {
	t.Parallel()
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests++
		id, secret, _ := r.BasicAuth()
		if r.FormValue("grant_type") != "client_credentials" || id != "me" || secret != "s%3D" || r.FormValue("scope") != "kafka" {
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"error":"invalid_client","secret":"leak"}`)
			return
		}
		fmt.Fprint(w, `{"access_token":"token-1","expires_in":3600}`)
	}))
	defer server.Close()
	config := kafkaio.OAuthConfig{TokenURL: server.URL, ClientID: "me", ClientSecret: "s=", Scope: "kafka"}
	source := kafkaio.TokenSource(config, slog.New(slog.DiscardHandler))
	for range 3 {
		token, err := source(context.Background())
		if err != nil || token != "token-1" {
			t.Fatalf("token %q, %v", token, err)
		}
	}
	if requests != 1 {
		t.Errorf("%d requests for one token", requests)
	}
	config.ClientID = "you"
	if _, err := kafkaio.TokenSource(config, slog.New(slog.DiscardHandler))(context.Background()); err == nil || !strings.Contains(err.Error(), "invalid_client") || strings.Contains(err.Error(), "leak") {
		t.Errorf("error: %v", err)
	}
	file := filepath.Join(t.TempDir(), "token")
	fromFile := kafkaio.TokenSource(kafkaio.OAuthConfig{TokenFile: file}, slog.New(slog.DiscardHandler))
	for _, want := range []string{"one", "two"} {
		if err := os.WriteFile(file, []byte(want+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if token, err := fromFile(context.Background()); err != nil || token != want {
			t.Errorf("token %q, %v, want %q", token, err, want)
		}
	}
}

func TestCompactedTopicIsRefused(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t)
	if err := c.CreateTopic(topic, 1, map[string]string{"cleanup.policy": "compact,delete"}); err != nil {
		t.Fatal(err)
	}
	r := start(t, clientConfig(c), fast(), newFakeHandler())
	if err := r.wait(t); err == nil || !strings.Contains(err.Error(), "compact,delete") {
		t.Errorf("Run returned %v", err)
	}
}
