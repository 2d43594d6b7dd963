package config_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
)

func TestWarnings(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*config.Config)
		want   string
	}{
		"local":  {func(*config.Config) {}, ""},
		"socket": {func(c *config.Config) { c.Database.URL = config.NewDatabaseURL("host=/run/postgresql dbname=d") }, ""},
		"remote": {func(c *config.Config) { c.Database.URL = config.NewDatabaseURL("postgres://db.example/d") }, "verify-full"},
		"remote, encrypted": {func(c *config.Config) {
			c.Database.URL = config.NewDatabaseURL("postgres://db.example/d?sslmode=require")
		}, "verify-full"},
		"remote, verified": {func(c *config.Config) {
			c.Database.URL = config.NewDatabaseURL("postgres://db.example/d?sslmode=verify-full")
		}, ""},
		"clear password": {func(c *config.Config) { c.Kafka.SecurityProtocol, c.Kafka.SASL.Mechanism = "SASL_PLAINTEXT", "PLAIN" }, "clear text"},
		"clear challenge": {func(c *config.Config) {
			c.Kafka.SecurityProtocol, c.Kafka.SASL.Mechanism = "SASL_PLAINTEXT", "SCRAM-SHA-256"
		}, ""},
	} {
		c := valid()
		tc.change(&c)
		got := strings.Join(c.Warnings(), "\n")
		if (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestUnknownEnvironment(t *testing.T) {
	t.Parallel()
	got := config.UnknownEnvironment([]string{
		"ORDERPROJECTOR_TOPIK=x", "ORDERPROJECTOR_TOPIC=x", "ORDERPROJECTOR_CONFIG=x", "PATH=/", "ORDERPROJECTOR_ON_DATALOSS=exit",
		"ORDERPROJECTOR_PORT=tcp://10.0.0.1:80", "ORDERPROJECTOR_SERVICE_HOST=10.0.0.1", "ORDERPROJECTOR_PORT_80_TCP_ADDR=10.0.0.1",
		"ORDERPROJECTOR_HTTP_SERVICE_PORT=80",
	})
	if diff := cmp.Diff([]string{"ORDERPROJECTOR_ON_DATALOSS", "ORDERPROJECTOR_TOPIK"}, got); diff != "" {
		t.Error(diff)
	}
}
