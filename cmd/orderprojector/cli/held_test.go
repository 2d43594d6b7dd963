package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/pgstore"
)

// refuseOrder makes a trigger of a user raise an exception for each row of an order.
func (c *counter) refuseOrder(id string) {
	c.Helper()
	exec(c.T, c.env["DATABASE_URL"], `
		CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'a rule of ours: %', NEW.order_id; END $$;
		CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON order_rows FOR EACH ROW WHEN (NEW.order_id = '`+id+`') EXECUTE FUNCTION refuse()`)
}

// retryHeld tries what is due, as a member's worker does.
func (c *counter) retryHeld(want int) {
	c.Helper()
	projector, err := projection.NewProjector(projection.ProjectorConfig{Group: "orderprojector", Store: pgstore.New(c.pool), Older: noKafka{}})
	if err != nil {
		c.Fatal(err)
	}
	if tried, err := projector.RetryHeldOnce(c.Context()); err != nil || tried != want {
		c.Errorf("%d held records tried, want %d (%v)", tried, want, err)
	}
}

func TestHeldCommands(t *testing.T) {
	t.Parallel()
	c := newCounter(t)
	c.project(created("o-1"), created("o-2"))
	c.refuseOrder("o-1")
	c.project(paid("o-1", "19.99"), event("o-1", 3, "OrderPacked.v1", `{}`), paid("o-2", "19.99"))
	exec(t, c.env["DATABASE_URL"], `UPDATE held_records SET due_at = now() + interval '1 hour'`)
	head, behind := c.ask(`SELECT min(id)::text FROM held_records`), c.ask(`SELECT max(id)::text FROM held_records`)

	c.do(ExitOK, "held list", "ID ORDER VERSION", head+" o-1 2 o-1-e2 OrderPaid.v1 0/2 head infrastructure 1 1", "a rule of ours: o-1", behind+" o-1 3 o-1-e3 OrderPacked.v1 0/3 1 before it queued 0 0")
	for line, n := range map[string]int{"": 2, "--order o-1": 2, "--order o-2": 0, "--heads": 1, "--overdue": 0, "--limit 1": 1, "--after " + head: 1, "--topic other": 0, "--group g": 0} {
		var some []map[string]any
		if err := json.Unmarshal([]byte(c.do(ExitOK, "held list -o json "+line).stdout), &some); err != nil || len(some) != n {
			t.Errorf("held list %s: %d records, want %d (%v)", line, len(some), n, err)
		}
	}
	c.do(ExitOK, "held list --limit 1", "there are more: --after "+head)
	c.do(ExitUsage, "held list --limit 0", "--limit 0")
	c.do(ExitOK, "held show "+head, "queue: head", "a rule of ours", `"payment_id":"p-1"`, "held retry "+head, "held give-up "+head, "orders timeline o-1")
	c.do(ExitOK, "held show "+behind, "queue: 1 before it", "held list --order o-1 --heads")
	if got := c.do(ExitOK, "held show --value "+head); got.stdout != string(paid("o-1", "19.99").Value) {
		t.Errorf("--value: %q", got.stdout)
	}
	c.do(ExitNotFound, "held show 4711", "4711")
	c.do(ExitUsage, "held show x", `"x" is not an ID`)
	c.do(ExitOK, "orders get o-1", "projection: blocked, for version 2", "blocked by: held record "+head, "next: orderprojector held show "+head)
	c.do(ExitOK, "orders list --status blocked", "o-1")
	c.do(ExitOK, "orders timeline o-1", "2 held", "3 held")
	c.do(ExitOK, "status", "blocked orders: 1", "held records: 2, the oldest for")

	c.do(ExitUsage, "held retry", "name IDs, or --order, or --all")
	c.do(ExitUsage, "held retry 1 --all", "name IDs, or --order, or --all")
	c.do(ExitNotFound, "held retry 4711", "held record 4711 of group orderprojector does not exist")
	c.do(ExitNotFound, "held retry "+head+" --group other", "does not exist")
	c.retryHeld(0) // nothing is due
	c.do(ExitOK, "held retry "+head+" --actor ann", head+" o-1 due")
	c.expect("who asked", `SELECT retried_by FROM held_records ORDER BY id LIMIT 1`, "ann")
	c.retryHeld(1)
	c.do(ExitOK, "held list --heads", head+" o-1 2 o-1-e2 OrderPaid.v1 0/2 head infrastructure 2 2")
	c.do(ExitOK, "held retry --order o-1", head+" o-1 due", behind+" o-1 due")

	c.do(ExitNotFound, "held give-up 4711", "4711")
	c.do(ExitUsage, "held give-up", "requires at least 1 arg")
	c.do(ExitUsage, "held give-up "+head+" --execute", "--comment is required")
	c.do(ExitFailed, "held give-up "+behind, "is not the head of its queue: 1 records of order \"o-1\" are before it", "hint:")
	c.do(ExitOK, "held give-up "+behind+" "+head, "dry run", head+" o-1 2 yes 2 1", behind+" o-1 3 yes 0 0")
	c.expect("after the dry run", `SELECT count(*)::text FROM held_records`, "2")
	c.expect("letters after the dry run", `SELECT count(*)::text FROM dead_letters`, "0")
	c.args(ExitOK, []string{"held", "give-up", head, "--execute", "--actor", "bob", "--comment", "beyond repair"}, head+" o-1 2 yes 2 1")
	c.expect("the letter", `SELECT concat_ws(' ', order_id, version, status, reason, blocks, was_held) FROM dead_letters`, "o-1 2 open invalid t t")
	c.expect("why", `SELECT (detail LIKE 'given up by bob after 2 failures: %a rule of ours%')::text FROM dead_letters`, "true")
	c.expect("the counts", `SELECT concat_ws(' ', applied, invalid, held) FROM projection_watermarks`, "3 1 1")
	c.do(ExitOK, "orders get o-1", "blocked, for version 2", "dead letter "+c.letterOf("o-1"), "held record "+behind)

	exec(t, c.env["DATABASE_URL"], `DROP TRIGGER refuse ON order_rows; UPDATE held_records SET due_at = now()`)
	c.retryHeld(1)
	c.expect("the one behind", `SELECT concat_ws(' ', applied, parked, invalid, held) FROM projection_watermarks`, "3 1 1 0")
	c.expect("held", `SELECT count(*)::text FROM held_records`, "0")
	c.do(ExitOK, "held list -o json", "[]")
	c.do(ExitOK, "held retry --all", "ID")
	c.do(ExitOK, "dlq redrive "+c.letterOf("o-1")+" --execute", "redriven: 1", "version 3, packed; ok")
	c.expect("the order", `SELECT state || ' ' || version || ' ' || projection_status FROM orders WHERE order_id = 'o-1'`, "packed 3 ok")

	var entries []struct{ Actor, Action, Target, Comment string }
	if err := json.Unmarshal([]byte(c.do(ExitOK, "audit list --action held -o json").stdout), &entries); err != nil {
		t.Fatal(err)
	}
	var actions []string
	for _, e := range entries {
		actions = append(actions, e.Action+" "+e.Target)
	}
	want := "held.retry all held records, held.give_up held_record " + head + ", held.retry order o-1, held.retry held_record " + head
	if got := strings.Join(actions, ", "); got != want {
		t.Errorf("audited %s\nwant %s", got, want)
	}
}
