//go:build unix

package integration_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/orderprojector/orderprojector/test/testenv"
)

// What the commands print of orders in every condition is what the database
// holds, in JSON that programs can rely on, and the exit codes tell the rest.
func TestCommandsShowTheRunningProjection(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{})
	s.start()
	s.produce(
		created("o-1"), paid("o-1", 2), created("o-2"), packed("o-2", 4), packed("o-3", 5), created("o-4"), paid("o-4", 3), packed("o-4", 2),
		record("o-4", "nonsense"), record("o-5", event("o-5", 1, "OrderShipped.v1", `{"carrier":"c","tracking_number":"t"}`)),
		record("ö-6 \"quoted\"\n", eventWithID("e", `ö-6 "quoted"`+"\n", 1, "OrderCreated.v1", `{"customer_id":"<c&>","total":{"amount":"5","currency":"JPY"}}`)),
	)
	s.awaitDrained()
	s.judge()

	for _, c := range []struct {
		orderID, want string
	}{
		{"o-1", `{"order_id":"o-1","customer_id":"c-1","state":"paid","version":2,"currency":"EUR","total_minor":1999,"total":"19.99","paid_minor":1999,"paid":"19.99",` +
			`"refunded_minor":0,"refunded":"0.00","created_at":"2026-01-01T10:00:01Z","updated_at":"2026-01-01T10:00:02Z","last_event_id":"o-1-e2",` +
			`"projection_status":"ok","waiting_for_version":null,"kafka_partition":0,"kafka_offset":1}`},
		{"o-2", `{"order_id":"o-2","state":"pending","version":1,"projection_status":"waiting","waiting_for_version":2,` +
			`"held_back_by":{"parked_events":1,"parked_from_version":4,"blocking_dead_letters":[]}}`},
		{"o-3", `{"order_id":"o-3","version":0,"projection_status":"waiting","waiting_for_version":1,"held_back_by":{"parked_events":1,"parked_from_version":5}}`},
		{"o-4", `{"order_id":"o-4","state":"pending","version":1,"projection_status":"blocked","waiting_for_version":2,"held_back_by":{"parked_events":1,` +
			`"parked_from_version":3,"blocking_dead_letters":[{"version":2,"event_id":"o-4-e2","reason":"illegal"}]}}`},
		{"o-5", `{"order_id":"o-5","version":0,"projection_status":"blocked","waiting_for_version":1,"held_back_by":{"parked_events":0,"parked_from_version":null}}`},
		{"ö-6 \"quoted\"\n", `{"customer_id":"<c&>","total":"5","currency":"JPY","total_minor":5}`},
	} {
		var got, want any
		s.commandJSON(&got, "orders", "get", c.orderID)
		must(t, json.Unmarshal([]byte(c.want), &want))
		if missing := notIn(want, got); missing != "" {
			t.Errorf("orders get %q: %s", c.orderID, missing)
		}
	}

	var timeline struct {
		Entries []struct {
			Kind, Type, State, Reason string
			Version                   *int64
		} `json:"entries"`
	}
	s.commandJSON(&timeline, "orders", "timeline", "o-4")
	var story []string
	for _, e := range timeline.Entries {
		version := "?"
		if e.Version != nil {
			version = fmt.Sprint(*e.Version)
		}
		story = append(story, strings.TrimSpace(version+" "+e.Kind+" "+e.State+e.Reason))
	}
	if got := strings.Join(story, ", "); got != "1 applied pending, 2 dead_letter illegal, 3 parked, ? dead_letter invalid" {
		t.Errorf("orders timeline o-4: %s", got)
	}

	for _, c := range []struct {
		args string
		want string // order IDs
	}{
		{"orders list", "o-1 o-2 o-4 ö-6"}, {"orders list --state pending", "o-2 o-4 ö-6"}, {"orders list --status blocked", "o-4"},
		{"orders list --customer c-1 --limit 1", "o-1"}, {"orders list --after o-2", "o-4 ö-6"}, {"orders list --unapplied", "o-3 o-5"},
		{"orders list --unapplied --status waiting", "o-3"},
	} {
		var list []struct {
			OrderID string `json:"order_id"`
		}
		s.commandJSON(&list, strings.Fields(c.args)...)
		var ids []string
		for _, o := range list {
			id, _, _ := strings.Cut(o.OrderID, " ")
			ids = append(ids, id)
		}
		if got := strings.Join(ids, " "); got != c.want {
			t.Errorf("%s: %s, wanted %s", c.args, got, c.want)
		}
	}

	for args, want := range map[string]struct {
		code int
		says string
	}{
		"orders get nobody":              {4, "nobody"},
		"orders timeline nobody":         {4, "nobody"},
		"orders get":                     {2, "arg"},
		"orders list --state lost":       {2, "lost"},
		"orders list --limit 0":          {2, "limit"},
		"orders list --output xml":       {2, "xml"},
		"orders get o-1 --database-url=": {2, ""},
		"frobnicate":                     {2, "frobnicate"},
	} {
		code, stdout, stderr := s.command(strings.Fields(args)...)
		if code != want.code || stdout != "" || !strings.Contains(stderr, want.says) {
			t.Errorf("%s: exit code %d, wanted %d\nstdout %q\nstderr %q", args, code, want.code, stdout, stderr)
		}
	}
}

// notIn says what of a JSON value another lacks; objects may have more members than wanted.
func notIn(want, got any) string {
	switch want := want.(type) {
	case map[string]any:
		object, ok := got.(map[string]any)
		if !ok {
			return fmt.Sprintf("%v is not an object", got)
		}
		for name, value := range want {
			if _, ok := object[name]; !ok {
				return fmt.Sprintf("%s is missing", name)
			}
			if missing := notIn(value, object[name]); missing != "" {
				return name + ": " + missing
			}
		}
	case []any:
		list, ok := got.([]any)
		if !ok || len(list) != len(want) {
			return fmt.Sprintf("%v, wanted %v", got, want)
		}
		for i := range want {
			if missing := notIn(want[i], list[i]); missing != "" {
				return missing
			}
		}
	default:
		if got != want {
			return fmt.Sprintf("%v, wanted %v", got, want)
		}
	}
	return ""
}

// The generator does not write among records of somebody else, and the same
// seed makes the same records.
func TestGenerateIsReproducibleAndCareful(t *testing.T) {
	t.Parallel()
	s, again, real := newStage(t, stageConfig{}), newStage(t, stageConfig{}), newStage(t, stageConfig{})
	for _, to := range []*stage{s, again} {
		code, stdout, stderr := to.command("generate", "--topic", to.topic, "--seed", "77", "--orders", "200", "--faults", "--poison", "0.1", "--output", "json")
		if code != 0 || !strings.Contains(stdout, `"seed": 77`) {
			t.Fatalf("generate: exit code %d\n%s%s", code, stdout, stderr)
		}
	}
	first, second := s.read(), again.read()
	if len(first) != len(second) || len(first) < 1000 {
		t.Fatalf("%d and %d records", len(first), len(second))
	}
	for i := range first {
		if !bytes.Equal(first[i].Key, second[i].Key) || !bytes.Equal(first[i].Value, second[i].Value) {
			t.Fatalf("record %d differs:\n%s\n%s", i, first[i].Value, second[i].Value)
		}
	}
	s.start()
	s.awaitDrained()
	s.judge()

	real.produce(created("o-1"))
	code, _, stderr := real.command("generate", "--topic", real.topic, "--orders", "1")
	if code != 1 || !strings.Contains(stderr, "not generated") || !strings.Contains(stderr, "hint:") {
		t.Errorf("generate into a topic of real orders: exit code %d\n%s", code, stderr)
	}
	if n := len(real.read()); n != 1 {
		t.Errorf("%d records in the topic of real orders", n)
	}
	if code, _, stderr := real.command("generate", "--orders", "1"); code != 2 {
		t.Errorf("generate without a topic: exit code %d\n%s", code, stderr)
	}
	if code, _, stderr := real.command("generate", "--topic", "no-such-topic-"+real.group, "--orders", "1"); code != 1 || !strings.Contains(stderr, "--create-topic") {
		t.Errorf("generate into no topic: exit code %d\n%s", code, stderr)
	}
}

// The schema goes up, down and up again, and the program says so when it is not there.
func TestMigrationsUpDownUp(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{DSN: testenv.EmptyDatabase(t), Forgiving: true})
	refused := func(args ...string) {
		t.Helper()
		code, _, stderr := s.command(args...)
		if code != 1 || !strings.Contains(stderr, "migrate up") {
			t.Errorf("%v without a schema: exit code %d\n%s", args, code, stderr)
		}
	}
	works := func(args ...string) string {
		t.Helper()
		code, stdout, stderr := s.command(args...)
		if code != 0 {
			t.Fatalf("%v: exit code %d\n%s", args, code, stderr)
		}
		return stdout
	}
	refused("run")
	refused("orders", "list")
	works("migrate", "up")
	schema := s.schema()
	if out := works("migrate", "status"); strings.Contains(out, "pending") {
		t.Errorf("migrate status: %s", out)
	}
	works("migrate", "up") // nothing to do

	p := s.start()
	s.produce(created("o-1"))
	s.awaitDrained()
	s.judge()
	p.Stop()

	if code, _, stderr := s.command("migrate", "down", "--to", "0"); code != 2 || !strings.Contains(stderr, "--yes") {
		t.Errorf("migrate down without a yes: exit code %d\n%s", code, stderr)
	}
	works("migrate", "down", "--yes")
	refused("run")
	works("migrate", "down", "--to", "0", "--yes")
	if left := ask[string](s, `SELECT coalesce(string_agg(relname, ' '), '') FROM pg_class
		WHERE relnamespace = 'public'::regnamespace AND relname NOT LIKE 'goose%'`); left != "" {
		t.Errorf("migrate down leaves %s", left)
	}
	refused("run")
	works("migrate", "up")
	if again := s.schema(); again != schema {
		t.Errorf("the schema is another one the second time:\n%s\n%s", schema, again)
	}
	s.start()
	s.awaitDrained() // the empty database heals itself: everything is read again
	s.judge()
}

// schema writes every column, index and constraint.
func (s *stage) schema() string {
	s.t.Helper()
	return ask[string](s, `SELECT string_agg(line, E'\n' ORDER BY line) FROM (
		SELECT format('%s.%s %s %s %s', table_name, column_name, data_type, is_nullable, column_default)
		FROM information_schema.columns WHERE table_schema = 'public' AND table_name NOT LIKE 'goose%'
		UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' AND tablename NOT LIKE 'goose%'
		UNION ALL SELECT conrelid::regclass || ' ' || pg_get_constraintdef(oid) FROM pg_constraint
		WHERE connamespace = 'public'::regnamespace AND contype = 'c') AS lines (line)`)
}
