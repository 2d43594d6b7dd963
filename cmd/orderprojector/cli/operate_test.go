package cli

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/pgstore"
	"github.com/orderprojector/orderprojector/test/testenv"
)

// counter is a database with orders in trouble, and the command line in front of it.
type counter struct {
	*testing.T
	env  map[string]string
	pool *pgxpool.Pool
	next int64
}

// newCounter projects records of partition 0 of orders.events, as a member would.
func newCounter(t *testing.T) *counter {
	t.Helper()
	dsn := testenv.Database(t)
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	pgstore.PrepareWriter(cfg)
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return &counter{T: t, env: map[string]string{"DATABASE_URL": dsn}, pool: pool}
}

func (c *counter) project(records ...projection.Record) {
	c.Helper()
	projector, err := projection.NewProjector(projection.ProjectorConfig{Group: "orderprojector", Store: pgstore.New(c.pool), Older: noKafka{}})
	if err != nil {
		c.Fatal(err)
	}
	tp := projection.TopicPartition{Topic: "orders.events", TopicID: projection.TopicID{1}}
	member, _, err := projector.Assign(c.Context(), projection.Assignment{Group: "orderprojector", TopicPartition: tp, Committed: projection.NoOffset})
	if err != nil {
		c.Fatal(err)
	}
	for i := range records {
		records[i].TopicPartition, records[i].Offset, records[i].Timestamp = tp, c.next, time.Unix(1_760_000_000, 0)
		c.next++
	}
	if err := member.Handle(c.Context(), records); err != nil {
		c.Fatal(err)
	}
}

func event(orderID string, version int, typ, data string) projection.Record {
	return projection.Record{Key: []byte(orderID), Value: fmt.Appendf(nil,
		`{"event_id":"%s-e%d","order_id":%q,"type":%q,"version":%d,"occurred_at":"2026-01-01T10:00:%02dZ","data":%s}`, orderID, version, orderID, typ, version, version, data)}
}

func created(id string) projection.Record {
	return event(id, 1, "OrderCreated.v1", `{"customer_id":"c-1","total":{"amount":"19.99","currency":"EUR"}}`)
}

func paid(id, amount string) projection.Record {
	return event(id, 2, "OrderPaid.v1", `{"payment_id":"p-1","amount":{"amount":"`+amount+`","currency":"EUR"}}`)
}

// do runs a command and expects its exit code, and texts in its output.
func (c *counter) do(code int, line string, texts ...string) result {
	c.Helper()
	return c.args(code, strings.Fields(line), texts...)
}

func (c *counter) args(code int, args []string, texts ...string) result {
	c.Helper()
	got := run(c.T, c.env, args...)
	if got.code != code {
		c.Errorf("%q: exit %d, want %d\nstdout: %s\nstderr: %s", args, got.code, code, got.stdout, got.stderr)
	}
	spaces := regexp.MustCompile(` +`)
	all := spaces.ReplaceAllString(got.stdout+got.stderr, " ")
	for _, text := range texts {
		if !strings.Contains(all, text) {
			c.Errorf("%q does not say %q:\n%s", args, text, all)
		}
	}
	return got
}

func (c *counter) ask(sql string, args ...any) (answer string) {
	c.Helper()
	if err := c.pool.QueryRow(context.Background(), sql, args...).Scan(&answer); err != nil {
		c.Fatalf("%s: %v", sql, err)
	}
	return answer
}

func (c *counter) letterOf(orderID string) string {
	c.Helper()
	return c.ask(`SELECT id::text FROM dead_letters WHERE order_id = $1 ORDER BY id LIMIT 1`, orderID)
}

func (c *counter) expect(what, sql, want string) {
	c.Helper()
	if got := c.ask(sql); got != want {
		c.Errorf("%s: %s, want %s", what, got, want)
	}
}

func TestDLQCommands(t *testing.T) {
	t.Parallel()
	c := newCounter(t)
	binary := projection.Record{
		Key: []byte("o-3"), Value: []byte{0xff, 0, 1, 'x'},
		Headers: []projection.Header{{Key: "trace\x1b", Value: []byte("a\x07b")}, {Key: "n"}, {Key: "e", Value: []byte{}}},
	}
	text := projection.Record{Key: []byte("o-4"), Value: []byte("evil \x1b[2J\nsecond line, grüße")}
	c.project(created("o-1"), paid("o-1", "1.00"), event("o-1", 3, "OrderPacked.v1", `{}`), event("o-1", 4, "OrderShipped.v1", `{"carrier":"x","tracking_number":"t"}`),
		created("o-2"), event("o-2", 2, "OrderGiftWrapped.v1", `{}`), binary, text,
		created("o-5"), event("o-5", 1, "OrderCreated.v1", `{"customer_id":"c-2","total":{"amount":"1.00","currency":"EUR"}}`),
		projection.Record{Key: []byte("o-6"), Value: []byte{}})
	illegal, unsupported, conflict := c.letterOf("o-1"), c.letterOf("o-2"), c.letterOf("o-5")

	c.do(ExitOK, "dlq list", "ID STATUS REASON", illegal+" open, blocks illegal o-1 2 OrderPaid.v1 1")
	var letters []map[string]any
	if err := json.Unmarshal([]byte(c.do(ExitOK, "dlq list -o json").stdout), &letters); err != nil || len(letters) != 6 {
		t.Errorf("%v: %d letters", err, len(letters))
	}
	for line, n := range map[string]int{
		"--reason illegal": 1, "--order o-5": 1, "--topic orders.events": 6, "--topic other": 0, "--since 1h": 6, "--until 1h": 0,
		"--status discarded": 0, "--status all": 6, "--type OrderPaid.v1": 1, "--overdue": 0, "--owner ann": 0, "--limit 2": 2, "--after " + conflict: 3,
		"--since 2026-01-01T00:00:00Z --until 2099-01-01T00:00:00Z": 6,
	} {
		var some []map[string]any
		if err := json.Unmarshal([]byte(c.do(ExitOK, "dlq list -o json "+line).stdout), &some); err != nil || len(some) != n {
			t.Errorf("dlq list %s: %d letters, want %d (%v)", line, len(some), n, err)
		}
	}
	c.do(ExitOK, "dlq group", "LETTERS ORDERS BLOCKING REASON", "1 1 1 illegal OrderPaid.v1")

	c.do(ExitOK, "dlq show "+illegal, "reason: illegal", "status: open, blocks its order", "attempts: 1", "first failed:", "VALUE (", "text)", "dlq redrive "+illegal,
		"--skip", "orders timeline o-1", `"payment_id":"p-1"`)
	shown := c.do(ExitOK, "dlq show "+c.letterOf("o-3"), "VALUE (4 bytes, hex)", "ff 00 01 78", `trace\x1b a\ab`, "n (null)", "e (empty)", "reason: invalid")
	shown2 := c.do(ExitOK, "dlq show "+c.letterOf("o-4"), `evil \x1b[2J`, "second line, grüße")
	if strings.ContainsAny(shown.stdout+shown2.stdout, "\x1b\x07\x00") {
		t.Error("control characters reach the terminal")
	}
	c.do(ExitOK, "dlq show "+c.letterOf("o-6"), "VALUE (empty)")
	if got := c.do(ExitOK, "dlq show --value "+c.letterOf("o-3")); got.stdout != string(binary.Value) {
		t.Errorf("--value: %q", got.stdout)
	}
	c.do(ExitNotFound, "dlq show 4711", "4711")
	c.do(ExitUsage, "dlq show x", `"x" is not an ID`)

	exported := c.do(ExitOK, "dlq export", "6 dead letters exported")
	lines := bufio.NewScanner(strings.NewReader(exported.stdout))
	count := 0
	for ; lines.Scan(); count++ {
		var l struct {
			OrderID *string `json:"order_id"`
			Value   *struct{ Base64 string }
			Headers []struct {
				Key   string
				Value *struct{ Base64 string }
			}
		}
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			t.Fatal(err)
		}
		if l.OrderID != nil && *l.OrderID == "o-3" {
			if value, err := base64.StdEncoding.DecodeString(l.Value.Base64); err != nil || string(value) != string(binary.Value) || l.Headers[1].Value != nil {
				t.Errorf("exported %q %v %+v", value, err, l.Headers)
			}
		}
	}
	if count != 6 {
		t.Errorf("%d lines exported", count)
	}

	c.do(ExitUsage, "dlq discard "+illegal, "--comment is required")
	c.args(ExitFailed, []string{"dlq", "discard", illegal, "--comment", "never happened"}, "holds order \"o-1\" back", "hint:", "--skip")
	c.args(ExitOK, []string{"dlq", "discard", illegal, "--skip", "--comment", "never happened"}, "dry run", "WHAT BECOMES OF THE EVENTS", "3 o-1-e3 OrderPacked.v1 illegal")
	c.expect("after the dry run", `SELECT status FROM dead_letters WHERE order_id = 'o-1'`, "open")
	c.expect("audited", `SELECT count(*)::text FROM audit_log`, "0")

	file := filepath.Join(t.TempDir(), "event.json")
	if err := os.WriteFile(file, append(paid("o-1", "19.99").Value, '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
	c.do(ExitUsage, "dlq redrive", "name IDs, or filters, or --all")
	c.do(ExitUsage, "dlq redrive 1 --all", "exclude each other")
	c.do(ExitUsage, "dlq redrive --all --with x", "exactly one ID")
	c.do(ExitUsage, "dlq redrive --resume 1", "--execute")
	c.do(ExitNotFound, "dlq redrive --resume 1 --execute", "redrive job 1")
	c.do(ExitNotFound, "dlq redrive 4711", "4711")
	c.do(ExitOK, "dlq redrive "+illegal, "dry run", "refused again: 1", illegal+" o-1 2 illegal open 2")
	c.expect("attempts after the dry run", `SELECT attempts::text FROM dead_letters WHERE order_id = 'o-1'`, "1")
	c.do(ExitOK, "dlq redrive "+illegal+" --with "+file, "dry run", "applied", "EVENTS PARKED BEHIND IT", "4 o-1-e4 OrderShipped.v1 applied")
	c.do(ExitOK, "dlq redrive "+illegal+" --with "+file+" --execute --actor ann", "redriven: 1", "version 4, shipped; ok")
	c.expect("the order", `SELECT state || ' ' || version || ' ' || projection_status FROM orders WHERE order_id = 'o-1'`, "shipped 4 ok")
	c.do(ExitOK, "decisions list", "o-1 substitute 2 "+illegal)
	c.do(ExitOK, "decisions show "+c.ask(`SELECT max(id)::text FROM operator_decisions`), "kind: substitute", `"amount":"19.99"`)
	c.do(ExitNotFound, "decisions show 99", "decision 99")
	c.do(ExitFailed, "dlq redrive "+illegal, "is redriven")

	c.do(ExitOK, "dlq redrive --reason unsupported --execute --max-attempts 2", "refused again: 1, 1 of them exhausted")
	c.do(ExitOK, "dlq redrive --reason unsupported --execute", "tried: 0")
	c.args(ExitOK, []string{"dlq", "assign", unsupported, "--owner", "bob", "--due", "2026-02-01T00:00:00Z", "--comment", "yours"}, "is assigned")
	c.do(ExitOK, "dlq list --owner bob --overdue", "bob 2026-02-01T00:00:00Z overdue")
	c.do(ExitUsage, "dlq assign 1 --comment x", "--owner or --due")
	c.args(ExitNotFound, []string{"dlq", "assign", "4711", "--owner", "x", "--comment", "y"}, "4711")
	c.args(ExitOK, []string{"dlq", "discard", unsupported, "--skip", "--execute", "--actor", "bob", "--comment", "we do not wrap"}, "version 2, pending; ok")
	c.args(ExitFailed, []string{"dlq", "restore", unsupported, "--comment", "hm"}, "skipped by decision", "decisions undo "+c.ask(`SELECT max(id)::text FROM operator_decisions`))

	c.args(ExitOK, []string{"dlq", "discard", conflict, "--comment", "a test"}, conflict+" open")
	c.args(ExitOK, []string{"dlq", "discard", conflict, "--comment", "a test"}, "already")
	c.args(ExitOK, []string{"dlq", "restore", conflict, "--comment", "not a test"}, "is open")
	c.args(ExitOK, []string{"dlq", "discard", conflict, "--comment", "a test after all"})
	c.args(ExitOK, []string{"dlq", "show", conflict}, "status: discarded", "a test after all", "dlq restore "+conflict)
	c.do(ExitUsage, "dlq purge --comment x", "older-than")
	c.do(ExitOK, "dlq purge --older-than 0s --comment retention", "2 dead letters would be deleted", "dry run")
	c.do(ExitOK, "dlq purge --older-than 1d --comment retention --execute", "0 dead letters deleted")
	c.do(ExitOK, "dlq purge --older-than 0s --comment retention --execute", "2 dead letters deleted")

	c.do(ExitOK, "audit list", "ACTOR ACTION TARGET", "ann dlq.redrive dead_letter "+illegal)
	var entries []struct{ Actor, Action, Target, Comment string }
	if err := json.Unmarshal([]byte(c.do(ExitOK, "audit list -o json").stdout), &entries); err != nil {
		t.Fatal(err)
	}
	var actions []string
	for _, e := range entries {
		actions = append(actions, e.Action)
	}
	want := "dlq.purge dlq.discard dlq.restore dlq.discard dlq.discard dlq.assign dlq.redrive dlq.redrive"
	if got := strings.Join(actions, " "); got != want {
		t.Errorf("audited %s\nwant %s", got, want)
	}
	c.do(ExitOK, "audit list --action dlq.purge --limit 1", "retention")
	if got := c.do(ExitOK, "audit list --actor bob -o yaml"); !strings.Contains(got.stdout, "we do not wrap") || strings.Contains(got.stdout, "actor: ann") {
		t.Error(got.stdout)
	}
	c.args(ExitOK, []string{"audit", "list", "--target", "dead_letter " + illegal, "--since", "1h"}, "dlq.redrive")
}

func TestGapsCommands(t *testing.T) {
	t.Parallel()
	c := newCounter(t)
	c.project(created("o-1"), event("o-1", 4, "OrderAmended.v1", `{"total":{"amount":"5.00","currency":"EUR"}}`), event("o-1", 5, "OrderPacked.v1", `{}`), created("o-2"),
		event("o-3", 2, "OrderPacked.v1", `{}`))
	c.do(ExitOK, "gaps list", "ORDER MISSING PARKED", "o-1 2-3 2", "o-3 1 1")
	c.do(ExitOK, "gaps list --overdue -o json", "[]")
	exec(t, c.env["DATABASE_URL"], `UPDATE parked_events SET parked_at = now() - interval '20 minutes' WHERE order_id = 'o-1'`)
	c.do(ExitOK, "gaps list --overdue", "overdue", "o-1")
	c.do(ExitOK, "orders get o-1", "projection: waiting, for version 2, overdue")
	c.do(ExitOK, "orders list --status waiting -o json", `"overdue": true`)
	c.args(ExitOK, []string{"gaps", "assign", "o-1", "--owner", "ann", "--due", "2h", "--comment", "asks the shop"}, "is assigned")
	c.do(ExitOK, "gaps show o-1", "owner: ann", "missing: 2-3", "PARKED (2)", "gaps accept o-1 --versions 2-3")
	c.do(ExitOK, "gaps list --overdue -o json", "[]") // the owner has time until then
	c.do(ExitNotFound, "gaps show o-2", "has no gap")
	c.args(ExitNotFound, []string{"gaps", "assign", "o-2", "--owner", "ann", "--comment", "x"}, "a gap of order")
	c.do(ExitUsage, "gaps accept o-1 --comment x", "versions")
	c.do(ExitUsage, "gaps accept o-1 --versions 3-2 --comment x", "neither a version nor a range")
	c.do(ExitUsage, "gaps accept o-1 --versions 2", "--comment is required")
	c.do(ExitFailed, "gaps accept o-1 --versions 3 --comment lost", "waits for version 2")
	c.do(ExitFailed, "gaps accept o-1 --versions 2-4 --comment lost", "version 4 is not missing")
	c.do(ExitNotFound, "gaps accept none --versions 1 --comment lost", "none")
	c.do(ExitOK, "gaps accept o-1 --versions 2-3 --comment lost", "dry run", "4 o-1-e4 OrderAmended.v1 applied", "5 o-1-e5 OrderPacked.v1 illegal")
	c.do(ExitOK, "gaps accept o-1 --versions 2-3 --comment lost --execute", "version 4, pending; blocked, for version 5", "decision: ")
	c.do(ExitOK, "orders timeline o-1", "2 skipped", "3 skipped", "4 applied")
	c.do(ExitUsage, "gaps repair --comment x", "--all or --overdue")
	c.do(ExitUsage, "gaps repair o-1 --comment x", "kafka-bootstrap-servers")
	c.do(ExitUsage, "offsets show", "kafka-bootstrap-servers")
	c.do(ExitUsage, "decisions undo 1 --comment x", "kafka-bootstrap-servers")
}
