package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	goodEvent = `{"event_id":"e-2","order_id":"o-1","type":"OrderPaid.v1","version":2,"occurred_at":"2026-01-01T10:00:00Z","data":{"payment_id":"p-1","amount":{"amount":"19.99","currency":"EUR"}}}`
	badEvent  = `{"event_id":"e-3","order_id":"o-1","type":"OrderCreated.v2","version":0,"occurred_at":"2026-01-01T10:00:00Z","data":{"customer_id":"c","lines":[{"sku":"s","quantity":1,"unit_price":{"amount":"1.999","currency":"EUR"}}]}}`
	newEvent  = `{"specversion":"1.0","source":"/shop","id":"e-4","subject":"o-2","type":"OrderPaid.v2","orderversion":2,"time":"2026-01-01T10:00:00Z","data":{}}`
)

func eventFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "events.json")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestSchemaListAndShow(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"table", "json", "yaml"} {
		got := run(t, nil, "schema", "list", "--output", format)
		if got.code != ExitOK || got.stderr != "" {
			t.Errorf("%s: exit %d, stderr %q", format, got.code, got.stderr)
		}
		golden(t, "schema-list."+format, got.stdout)
	}
	got := run(t, nil, "schema", "show", "OrderCreated.v2")
	golden(t, "schema-show", got.stdout)
	got = run(t, nil, "schema", "show", "OrderPaid", "-o", "json")
	var document map[string]any
	if err := json.Unmarshal([]byte(got.stdout), &document); err != nil || document["title"] != "OrderPaid.v1" {
		t.Errorf("%v: %s", err, got.stdout)
	}
	if got := run(t, nil, "schema", "show", "OrderPaid.v2"); got.code != ExitNotFound || !strings.Contains(got.stderr, "OrderPaid.v1") {
		t.Errorf("exit %d: %s", got.code, got.stderr)
	}
}

func TestSchemaCheck(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file string
		code int
	}{
		"schema-check-accepted": {goodEvent, ExitOK},
		"schema-check-refused":  {goodEvent + "\n" + badEvent + "\n" + newEvent + "\n{\"order_id\n", ExitFailed},
		"schema-check-many":     {strings.Repeat(goodEvent+"\n", 5), ExitOK},
	} {
		file := eventFile(t, c.file)
		got := run(t, nil, "schema", "check", file)
		if got.code != c.code {
			t.Errorf("%s: exit %d, want %d: %s", name, got.code, c.code, got.stderr)
		}
		golden(t, name, got.stdout)
		got = run(t, nil, "schema", "check", file, "--output", "json")
		if got.code != c.code {
			t.Errorf("%s: exit %d as JSON, want %d: %s", name, got.code, c.code, got.stderr)
		}
		if name != "schema-check-many" {
			golden(t, name+".json", got.stdout)
		}
	}
	for name, c := range map[string]struct {
		args string
		code int
		says string
	}{
		"no file":     {"schema check", ExitUsage, "accepts 1 arg(s)"},
		"none there":  {"schema check /nowhere/events.json", ExitUsage, "/nowhere/events.json"},
		"a directory": {"schema check /", ExitUsage, "directory"},
		"no event":    {"schema check " + os.DevNull, ExitFailed, "holds no event"},
	} {
		if got := run(t, nil, strings.Fields(c.args)...); got.code != c.code || !strings.Contains(got.stderr, c.says) || got.stdout != "" {
			t.Errorf("%s: exit %d, %q, want %d and %q", name, got.code, got.stderr, c.code, c.says)
		}
	}
}

func TestSchemaCheckReadsStandardInput(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	code := Execute(context.Background(), []string{"schema", "check", "-"}, &Env{
		Stdin: strings.NewReader(goodEvent), Stdout: &stdout, Stderr: &stderr,
		LookupEnv: func(string) (string, bool) { return "", false },
	})
	if code != ExitOK || !strings.Contains(stdout.String(), "accepted") {
		t.Errorf("exit %d: %s%s", code, &stdout, &stderr)
	}
}
