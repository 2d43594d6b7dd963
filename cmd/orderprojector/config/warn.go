package config

import (
	"net"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// Warnings lists what works but should not be left so. It expects a valid configuration.
func (c Config) Warnings() []string {
	var warnings []string
	k := c.Kafka
	if k.SecurityProtocol == "SASL_PLAINTEXT" && (k.SASL.Mechanism == "PLAIN" || k.SASL.Mechanism == "OAUTHBEARER") {
		warnings = append(warnings, "credentials for Kafka cross the network in clear text: use kafka-security-protocol SASL_SSL")
	}
	if db, err := pgconn.ParseConfig(c.Database.URL.Reveal()); err == nil && !verified(db) {
		warnings = append(warnings, "the connection to PostgreSQL does not verify the server: use sslmode=verify-full")
	}
	if c.Notifications.Webhook.clear() {
		warnings = append(warnings, "notifications cross the network in clear text: use an https URL for the webhook")
	}
	return warnings
}

// verified reports that no address of the database can be impersonated on the network.
func verified(db *pgconn.Config) bool {
	secure := local(db.Host) || db.TLSConfig != nil && !db.TLSConfig.InsecureSkipVerify
	for _, f := range db.Fallbacks {
		secure = secure && (local(f.Host) || f.TLSConfig != nil && !f.TLSConfig.InsecureSkipVerify)
	}
	return secure
}

func local(host string) bool {
	return strings.HasPrefix(host, "/") || host == "localhost" || net.ParseIP(host).IsLoopback()
}

// serviceLink matches what Kubernetes adds for a service that is named like
// this program.
var serviceLink = regexp.MustCompile(`_SERVICE_(HOST|PORT)(_|$)|_PORT(_|$)`)

// UnknownEnvironment lists the variables, of those given as NAME=value, whose
// name begins like a setting's but is none.
func UnknownEnvironment(environ []string) []string {
	known := map[string]bool{FileEnv: true}
	c := Default()
	for _, s := range c.settings() {
		known[s.env] = true
		if s.fileVariant {
			known[s.env+"_FILE"] = true
		}
	}
	var unknown []string
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "ORDERPROJECTOR_") && !known[name] && !serviceLink.MatchString(name) {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	return unknown
}
