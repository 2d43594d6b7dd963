package config_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
)

const canary = "c4n4ry"

// everyRendering shows a value in every way that a program shows values.
func everyRendering(t *testing.T, v any) string {
	t.Helper()
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
		fmt.Fprintf(&out, verb+"\n", v)
	}
	for _, marshal := range []func(any) ([]byte, error){json.Marshal, yaml.Marshal} {
		b, err := marshal(v)
		if err != nil {
			t.Error(err)
		}
		out.Write(b)
	}
	slog.New(slog.NewTextHandler(&out, nil)).Info("text", "value", v)
	slog.New(slog.NewJSONHandler(&out, nil)).Info("json", "value", v)
	return out.String()
}

func TestNothingShowsASecret(t *testing.T) {
	t.Parallel()
	c := valid()
	c.Kafka.SASL.Password = config.NewSecret(canary)
	c.Kafka.SASL.OAuth.ClientSecret = config.NewSecret(canary)
	c.Database.URL = config.NewDatabaseURL("postgres://u:" + canary + "@h/d?sslpassword=" + canary)
	for name, v := range map[string]any{
		"config": c, "pointer": &c, "kafka": c.Kafka, "database": c.Database, "values": c.Values(),
		"secret": c.Kafka.SASL.Password, "secret pointer": &c.Kafka.SASL.Password, "url": c.Database.URL, "url pointer": &c.Database.URL,
	} {
		shown := everyRendering(t, v)
		for _, form := range []string{canary, fmt.Sprintf("%x", canary)} {
			if strings.Contains(shown, form) {
				t.Errorf("%s shows the secret:\n%s", name, shown)
			}
		}
	}
}

func TestDatabaseURLShowsItselfWithoutPasswords(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"":                                    "",
		"postgres://u@h:5432/d":               "postgres://u@h:5432/d",
		"postgres://u:c4n4ry@h/d?sslmode=off": "postgres://u:xxxxx@h/d?sslmode=off",
		"postgresql://h/d?password=c4n4ry":    "postgresql://h/d?password=xxxxx",
		"postgres://u:c4n4ry@h:port/d":        "[redacted]",
		"postgres://u:c4n4ry%@h/d":            "[redacted]",
		"postgres://u:p@a,b:1/d":              "postgres://u:xxxxx@a,b:1/d",
		"Postgres://u:c4n4ry@h/d":             "[redacted]",
		"c4n4ry":                              "[redacted]",
		"host=h password=c4n4ry dbname=d":     "host=h password=xxxxx dbname=d",
		"host=h password = 'c4n4 c4n4ry' x=y": "host=h password = xxxxx x=y",
		`password='it\'s c4n4ry' host=h`:      "password=xxxxx host=h",
		`password=a\ c4n4ry host=h`:           "password=xxxxx host=h",
		"password='c4n4ry without end":        "password=xxxxx",
		"PASSWORD=c4n4ry sslpassword=c4n4ry":  "PASSWORD=xxxxx sslpassword=xxxxx",
		"host=h":                              "host=h",
	} {
		if got := config.NewDatabaseURL(given).String(); got != want {
			t.Errorf("%q shows as %q, want %q", given, got, want)
		}
	}
}

func FuzzDatabaseURL(f *testing.F) {
	f.Add("p@ss", "h")
	f.Add("x y'", "h:1")
	f.Add(`\`, "")
	f.Fuzz(func(t *testing.T, password, host string) {
		password = canary + password + canary
		for _, form := range []string{
			"postgres://u:" + password + "@" + host + "/d", "postgres://" + host + "/d?password=" + password,
			"host=h password='" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(password) + "'",
		} {
			shown := config.NewDatabaseURL(form).String()
			if strings.HasPrefix(form, "postgres://u:") && strings.Contains(password+host, "@") {
				continue // then nobody can tell where the password ends
			}
			if strings.Contains(password+host, "&") || strings.ContainsAny(host+password, "/?#") {
				continue // ends the password, for PostgreSQL too
			}
			if strings.Contains(shown, canary) {
				t.Errorf("%q shows as %q", form, shown)
			}
		}
	})
}
