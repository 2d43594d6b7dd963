package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

var update = flag.Bool("update", false, "write the golden files")

// result is what a command line left behind.
type result struct {
	code           int
	stdout, stderr string
}

// run runs a command line with the given environment only.
func run(t *testing.T, env map[string]string, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := Execute(context.Background(), args, &Env{
		Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr,
		LookupEnv: func(name string) (string, bool) {
			v, ok := env[name]
			return v, ok
		},
	})
	return result{code, stdout.String(), stderr.String()}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (-want +got; -update rewrites it):\n%s", path, diff)
	}
}

func TestUsageErrors(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"nothing":                           `unknown command "nothing"`,
		"orders":                            `needs a command: get, list, timeline, as-of, diff`,
		"orders show":                       `unknown command "show"`,
		"migrate":                           `needs a command: up, down, status`,
		"orders get":                        "accepts 1 arg(s)",
		"orders get a b":                    "accepts 1 arg(s)",
		"orders get a":                      "database-url is not set",
		"orders list --state lost":          `--state "lost" is not one of pending`,
		"orders list --status bad":          `--status "bad"`,
		"orders list --limit 0":             "--limit 0",
		"states --output xml":               `"xml" is not one of table, json, yaml, mermaid`,
		"states --unknown":                  "unknown flag",
		"run --writers x":                   `"x" is not a whole number`,
		"run":                               "kafka-bootstrap-servers is not set",
		"version --log-level loud":          `"loud" is not debug, info`,
		"migrate up --config /none.yaml":    "/none.yaml",
		"config print --config /dev/null/x": "cannot be read",
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			got := run(t, nil, strings.Fields(line)...)
			if got.code != ExitUsage || !strings.Contains(got.stderr, want) {
				t.Errorf("exit %d, stderr %q; want 2 and %q", got.code, got.stderr, want)
			}
			if got.stdout != "" || !strings.Contains(got.stderr, "hint: ") {
				t.Errorf("stdout %q, stderr %q: want no data and a hint", got.stdout, got.stderr)
			}
		})
	}
}

func TestNothingListensAtTheDatabase(t *testing.T) {
	t.Parallel()
	env := map[string]string{"DATABASE_URL": "postgres://u:c4n4ry@127.0.0.1:1/d"}
	for _, line := range []string{"orders get x", "orders list", "migrate status", "migrate up"} {
		got := run(t, env, strings.Fields(line)...)
		if got.code != ExitFailed || !strings.Contains(got.stderr, "is PostgreSQL running") {
			t.Errorf("%s: exit %d, stderr %q", line, got.code, got.stderr)
		}
		if strings.Contains(got.stderr, "c4n4ry") {
			t.Errorf("%s shows the password: %s", line, got.stderr)
		}
	}
}

func TestStates(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"table", "json", "yaml", "mermaid"} {
		got := run(t, nil, "states", "--output", format)
		if got.code != ExitOK || got.stderr != "" {
			t.Errorf("%s: exit %d, stderr %q", format, got.code, got.stderr)
		}
		golden(t, "states."+format, got.stdout)
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	got := run(t, nil, "version", "-o", "json")
	var data map[string]any
	if err := json.Unmarshal([]byte(got.stdout), &data); err != nil || data["version"] == "" || data["schema_version"] == nil {
		t.Errorf("%v: %s", err, got.stdout)
	}
}

func TestConfigPrintShowsOriginsAndNoSecrets(t *testing.T) {
	t.Parallel()
	env := map[string]string{
		"KAFKA_BOOTSTRAP_SERVERS": "k:9092", "KAFKA_SECURITY_PROTOCOL": "SASL_SSL", "KAFKA_SASL_MECHANISM": "PLAIN",
		"KAFKA_SASL_USERNAME": "u", "KAFKA_SASL_PASSWORD": "c4n4ry", "DATABASE_URL": "postgres://u:c4n4ry@h/d",
		"KAFKA_SASL_OAUTHBEARER_CLIENT_SECRET": "c4n4ry", "ORDERPROJECTOR_WEBHOOK_SECRET": "c4n4ry", "ORDERPROJECTOR_WRITERS": "3",
	}
	for _, format := range []string{"table", "json", "yaml"} {
		got := run(t, env, "config", "print", "--topic", "t", "--output", format)
		if got.code != ExitOK || got.stderr != "" {
			t.Errorf("%s: exit %d, stderr %q", format, got.code, got.stderr)
		}
		if strings.Contains(got.stdout, "c4n4ry") {
			t.Errorf("%s shows a secret:\n%s", format, got.stdout)
		}
		golden(t, "config."+format, got.stdout)
	}
	if got := run(t, nil, "config", "print"); got.code != ExitOK || !strings.Contains(got.stderr, "not valid for run") {
		t.Errorf("exit %d, stderr %q", got.code, got.stderr)
	}
}

func TestYAMLAndJSONAreTheSame(t *testing.T) {
	t.Parallel()
	data := []any{map[string]any{"a": "yes", "b": "1e3", "c": "null", "d": 9007199254740993, "e": nil, "f": "a\nb: c", "g": []int{}, "h": "0x1F", "i": "~"}}
	var asJSON, asYAML bytes.Buffer
	if err := printJSON(&asJSON, data); err != nil {
		t.Fatal(err)
	}
	if err := printYAML(&asYAML, data); err != nil {
		t.Fatal(err)
	}
	var back any
	if err := yaml.Unmarshal(asYAML.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	var again bytes.Buffer
	if err := printJSON(&again, back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(asJSON.String(), again.String()); diff != "" {
		t.Errorf("%s\n%s", diff, &asYAML)
	}
}

func TestTablesDoNotCommandTheTerminal(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	o := &output{format: "table"}
	if err := o.print(&out, nil, func(t *tableWriter) { t.row("\x1b[2Jevil", "tab\there", "grüße", "x") }); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), `\x1b[2Jevil  tab\there  grüße  x`+"\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
