package config_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
)

// valid is a configuration that every case changes in one way.
func valid() config.Config {
	c := config.Default()
	c.Kafka.BootstrapServers = config.List{"localhost:9092"}
	c.Database.URL = config.NewDatabaseURL("postgres://u:canary@localhost/orders")
	return c
}

func TestDefaultsPlusAddressesAreValid(t *testing.T) {
	t.Parallel()
	c := valid()
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
}

func TestValidateNamesSettingAndValue(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change  func(*config.Config)
		setting string
		want    string
	}{
		"no servers":       {func(c *config.Config) { c.Kafka.BootstrapServers = nil }, "kafka-bootstrap-servers", "not set"},
		"server":           {func(c *config.Config) { c.Kafka.BootstrapServers = config.List{"kafka"} }, "kafka-bootstrap-servers", `"kafka"`},
		"protocol":         {func(c *config.Config) { c.Kafka.SecurityProtocol = "TLS" }, "kafka-security-protocol", `"TLS"`},
		"ca without TLS":   {func(c *config.Config) { c.Kafka.TLS.CALocation = "/ca" }, "kafka-ssl-ca-location", "PLAINTEXT"},
		"half certificate": {func(c *config.Config) { c.Kafka.SecurityProtocol = "SSL"; c.Kafka.TLS.KeyLocation = "/k" }, "kafka-ssl-certificate-location", "go together"},
		"SASL without protocol": {func(c *config.Config) { c.Kafka.SASL.Mechanism = "PLAIN" }, "kafka-sasl-mechanism",
			"kafka-security-protocol is PLAINTEXT"},
		"no mechanism": {func(c *config.Config) { c.Kafka.SecurityProtocol = "SASL_SSL" }, "kafka-sasl-mechanism", "OAUTHBEARER"},
		"no password": {func(c *config.Config) {
			c.Kafka.SecurityProtocol, c.Kafka.SASL.Mechanism, c.Kafka.SASL.Username = "SASL_SSL", "PLAIN", "u"
		}, "kafka-sasl-password", "PLAIN needs one"},
		"no token": {func(c *config.Config) { c.Kafka.SecurityProtocol, c.Kafka.SASL.Mechanism = "SASL_SSL", "OAUTHBEARER" },
			"kafka-sasl-oauthbearer-token-file", "needs one of them"},
		"two tokens": {func(c *config.Config) {
			c.Kafka.SecurityProtocol, c.Kafka.SASL.Mechanism = "SASL_SSL", "OAUTHBEARER"
			c.Kafka.SASL.OAuth = config.OAuth{TokenFile: "/t", TokenURL: "https://i/t"}
		}, "kafka-sasl-oauthbearer-token-file", "exclude each other"},
		"topic":            {func(c *config.Config) { c.Kafka.Topic = "a b" }, "topic", `"a b"`},
		"group":            {func(c *config.Config) { c.Kafka.Group = "" }, "group", "empty"},
		"group protocol":   {func(c *config.Config) { c.Kafka.GroupProtocol = "eager" }, "group-protocol", `"eager" is not one of classic, consumer`},
		"data loss":        {func(c *config.Config) { c.Kafka.OnDataLoss = "ignore" }, "on-data-loss", `"ignore"`},
		"own dead letters": {func(c *config.Config) { c.Kafka.DeadLetterTopic = "<topic>" }, "dead-letter-topic", "is the topic with the events"},
		"dead letters":     {func(c *config.Config) { c.Kafka.DeadLetterTopic = "<x>-dlt" }, "dead-letter-topic", "not a topic name"},
		"session":          {func(c *config.Config) { c.Kafka.SessionTimeout = 0 }, "session-timeout", `"0s"`},
		"database URL":     {func(c *config.Config) { c.Database.URL = config.NewDatabaseURL("postgres://u:canary@h:port/d") }, "database-url", "not a PostgreSQL"},
		"exec mode": {func(c *config.Config) {
			c.Database.URL = config.NewDatabaseURL("postgres://u:canary@h/d?default_query_exec_mode=simple_protocol")
		}, "database-url", "default_query_exec_mode=simple_protocol"},
		"no database": {func(c *config.Config) { c.Database.URL = config.DatabaseURL{} }, "database-url", "not set"},
		"lock timeout": {func(c *config.Config) { c.Database.LockTimeout = time.Minute }, "database-lock-timeout",
			"longer than database-statement-timeout 10s"},
		"writers": {func(c *config.Config) { c.Database.Writers = 0 }, "writers", `"0" is not between 1 and 64`},
		"batch":   {func(c *config.Config) { c.Projection.BatchMaxBytes = 1 }, "batch-max-bytes", `"1B" is not between 1KiB and 1GiB`},
		"http":    {func(c *config.Config) { c.HTTP.Address = "8080" }, "http-address", `"8080" is not host:port`},
		"format":  {func(c *config.Config) { c.Log.Format = "xml" }, "log-format", `"xml"`},
		"grace":   {func(c *config.Config) { c.ShutdownGrace = -1 }, "shutdown-grace", `"-1ns"`},
		"stall":   {func(c *config.Config) { c.StallLimit = 0 }, "stall-limit", `"0s"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := valid()
			tc.change(&c)
			err := c.Validate()
			expectProblem(t, err, tc.setting, tc.want)
			if err != nil && strings.Contains(err.Error(), "canary") {
				t.Errorf("the error shows a password: %v", err)
			}
		})
	}
}

func TestValidateReportsEveryProblem(t *testing.T) {
	t.Parallel()
	c := valid()
	c.Kafka.Topic, c.Database.Writers, c.Log.Format = "", -1, ""
	joined, ok := c.Validate().(interface{ Unwrap() []error })
	if !ok || len(joined.Unwrap()) != 3 {
		t.Errorf("got %v, want three problems", c.Validate())
	}
}

func TestValidateLooksOnlyAtTheSectionsAskedFor(t *testing.T) {
	t.Parallel()
	c := config.Default() // has neither Kafka nor database
	if err := c.Validate(config.SectionLog, config.SectionHTTP); err != nil {
		t.Error(err)
	}
	if err := c.Validate(config.SectionDatabase); err == nil {
		t.Error("a missing database URL passed")
	}
}

func TestLibpqVariablesStandInForTheURL(t *testing.T) {
	t.Parallel()
	c, err := load(t, "", map[string]string{"PGHOST": "db"})
	if err := errors.Join(err, c.Validate(config.SectionDatabase)); err != nil {
		t.Error(err)
	}
}

func TestSessionTimeoutBelongsToTheClassicProtocol(t *testing.T) {
	t.Parallel()
	c, err := load(t, "", nil, "--group-protocol=consumer", "--session-timeout=20s")
	if err != nil {
		t.Fatal(err)
	}
	expectProblem(t, c.Validate(config.SectionGroup), "session-timeout", "group-protocol consumer")
	if c, err = load(t, "", nil, "--group-protocol=consumer"); errors.Join(err, c.Validate(config.SectionGroup)) != nil {
		t.Error("the default session timeout is in the way of the consumer protocol")
	}
}

func TestDeadLetterTopic(t *testing.T) {
	t.Parallel()
	for setting, want := range map[string]string{"<topic>-dlt": "orders.events-dlt", "dlq.<topic>": "dlq.orders.events", "x": "x", "": "", "none": ""} {
		c := valid()
		c.Kafka.DeadLetterTopic = setting
		if got := c.Kafka.DeadLetters(); got != want || c.Validate() != nil {
			t.Errorf("%q means %q, want %q", setting, got, want)
		}
	}
}
