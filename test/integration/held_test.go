//go:build unix

package integration_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderprojector/orderprojector/projection"
)

// heldLimit is within what the other orders of a batch are to be applied, although one order cannot be written.
const heldLimit = 30 * time.Second

// sabotage puts a trigger of a user on a table, which does something for each row of some orders, until the returned function is called.
func (s *stage) sabotage(table, deed string, orderIDs ...string) (end func()) {
	s.t.Helper()
	s.exec(fmt.Sprintf(`
		CREATE FUNCTION sabotage() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN %s; RETURN NEW; END $$;
		CREATE TRIGGER sabotage BEFORE INSERT OR UPDATE ON %s FOR EACH ROW WHEN (NEW.order_id IN ('%s')) EXECUTE FUNCTION sabotage()`,
		deed, table, strings.Join(orderIDs, "', '")))
	return func() { s.t.Helper(); s.exec(`DROP TRIGGER sabotage ON ` + table) }
}

const raises = `RAISE EXCEPTION 'a rule of ours'`

// crowd are orders beside the one in trouble.
func crowd(event func(orderID string) *kgo.Record) (records []*kgo.Record) {
	for i := range 20 {
		records = append(records, event(fmt.Sprintf("o-%d", i)))
	}
	return records
}

// amid puts records into the middle of others.
func amid(others []*kgo.Record, records ...*kgo.Record) []*kgo.Record {
	return append(append(append([]*kgo.Record(nil), others[:10]...), records...), others[10:]...)
}

func payment(id string) *kgo.Record { return paid(id, 2) }

// within waits for SQL to be true, and fails when that takes longer than others may be kept waiting.
func (s *stage) within(began time.Time, sql string, args ...any) {
	s.t.Helper()
	s.awaitSQL(sql, args...)
	took := time.Since(began)
	s.t.Logf("after %v: %s", took.Round(100*time.Millisecond), sql)
	if took > heldLimit {
		s.t.Errorf("%v until %s", took, sql)
	}
}

// addsUp checks that the counts of the partition are its visible records.
func (s *stage) addsUp() {
	s.t.Helper()
	if want, got := int64(len(s.read())), s.counts().Total(); got != want {
		s.t.Errorf("%d records are counted, of %d", got, want)
	}
}

// One order cannot be written, for whatever reason. The others do not mind, and the order heals by itself when the reason ends.
func TestHeldRecordsOfAnOrderThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	for name, play := range map[string]struct {
		begin func(*stage) (end func())
		cause string
		alone bool // there is no second order in trouble, of which nothing is applied
	}{
		"a trigger raises": {func(s *stage) func() { return s.sabotage("order_rows", raises, "a", "n") }, "a rule of ours (SQLSTATE P0001)", false},
		"a trigger sleeps": {func(s *stage) func() { return s.sabotage("order_rows", "PERFORM pg_sleep(30)", "a", "n") }, "no result within", false},
		"a row is locked":  {func(s *stage) func() { return s.holdOrders("a") }, "another session holds the lock of order", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, stageConfig{})
			s.watchRows()
			s.start()
			s.produce(amid(crowd(created), created("a"))...)
			s.awaitDrained()

			end := play.begin(s)
			began := time.Now()
			trouble := []*kgo.Record{paid("a", 2), packed("a", 3)}
			if !play.alone {
				trouble = append(trouble, created("n"))
			}
			s.produce(amid(crowd(payment), trouble...)...)
			s.within(began, `SELECT count(*) = 20 FROM orders WHERE order_id LIKE 'o-%' AND version = 2 AND projection_status = 'ok'`)
			s.within(began, `SELECT version = 1 AND projection_status = 'blocked' FROM orders WHERE order_id = 'a'`)
			s.awaitDrained() // the committed offset reaches the end
			if !play.alone {
				s.within(began, `SELECT projection_status = 'blocked' FROM waiting_orders WHERE order_id = 'n'`)
			}
			s.addsUp()

			s.awaitSQL(`SELECT failures >= 2 FROM held_records WHERE order_id = 'a' AND version = 2`)
			s.operate(play.cause, "held", "list", "--order", "a")
			if got := ask[string](s, `SELECT class || ' ' || failures FROM held_records WHERE order_id = 'a' AND version = 3`); got != "queued 0" {
				t.Errorf("the record behind: %s", got)
			}
			s.operate("blocked by", "orders", "get", "a")
			s.expect(0, "held records", "verify")

			end()
			s.awaitNoneHeld()
			s.awaitOrder("a", 3, "ok")
			s.addsUp()
			s.noLetters()
			s.judge()
			s.nothingWentBack()
			s.expect(0, "", "verify")
		})
	}
}

// A row that somebody broke by SQL stops nobody but its order.
func TestHeldRecordsOfARowThatCannotBeRead(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{})
	p := s.start()
	s.produce(created("a"), created("b"))
	s.awaitDrained()
	p.Stop() // the program forgets the row
	was := ask[[]string](s, `SELECT ledger_types FROM order_rows WHERE order_id = 'a'`)
	s.exec(`UPDATE order_rows SET ledger_types = '{}' WHERE order_id = 'a'`)
	s.start()
	began := time.Now()
	s.produce(paid("a", 2), paid("b", 2))
	s.within(began, `SELECT version = 2 FROM orders WHERE order_id = 'b'`)
	s.within(began, `SELECT projection_status = 'blocked' FROM orders WHERE order_id = 'a'`)
	s.awaitDrained()
	s.operate("order \"a\"", "held", "list")
	s.exec(`UPDATE order_rows SET ledger_types = $1 WHERE order_id = 'a'`, was)
	s.awaitNoneHeld()
	s.judge()
}

// What a consumer beside the projector cannot write is held as well. Its orders are not blocked.
func TestHeldRecordsOfConsumers(t *testing.T) {
	t.Parallel()
	play := func(s *consumerStage, table string) {
		s.t.Helper()
		s.start()
		s.produce(amid(crowd(func(id string) *kgo.Record { return createdBy(id, "c-1") }), createdBy("a", "c-1"))...)
		s.awaitDrained()
		end := s.sabotage(table, raises, "a")
		began := time.Now()
		pay := func(id string) *kgo.Record { return paidWith(id, 2, "p-"+id, "19.99", "EUR", "c-1") }
		s.produce(amid(crowd(pay), pay("a"), paidWith("a", 3, "p-a3", "1.00", "EUR", "c-1"))...)
		s.within(began, `SELECT count(DISTINCT order_id) = 20 FROM `+table)
		s.awaitDrained()
		s.addsUp()
		s.awaitSQL(`SELECT failures >= 2 FROM held_records WHERE order_id = 'a' AND version = 2`)
		if got := ask[string](s.stage, `SELECT concat_ws(' ', class, failures, projected) FROM held_records WHERE order_id = 'a' AND version = 3`); got != "queued 0 f" {
			s.t.Errorf("the record behind: %s", got)
		}
		if _, stdout, stderr := s.command("held", "list", "--group", s.group); !strings.Contains(stdout, "a rule of ours (SQLSTATE P0001)") {
			s.t.Errorf("held list: %s%s", stdout, stderr)
		}
		end()
		s.awaitNoneHeld()
		s.addsUp()
	}
	t.Run("loyalty", func(t *testing.T) {
		t.Parallel()
		s := newLoyaltyStage(t, stageConfig{})
		play(s, "points_ledger")
		s.judgePoints()
	})
	t.Run("notifications", func(t *testing.T) {
		t.Parallel()
		s := newNotificationStage(t, stageConfig{}, nil)
		play(s.consumerStage, "notifications")
		s.awaitSettled()
		s.judgeNotifications()
	})
}

// What somebody gives up becomes a dead letter, which is worked off as any other. verify agrees all the time.
func TestHeldRecordsGivenUp(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{})
	s.start()
	s.produce(amid(crowd(created), created("a"))...)
	s.awaitDrained()
	end := s.sabotage("order_rows", raises, "a", "n")
	s.produce(amid(crowd(payment), paid("a", 2), packed("a", 3), created("n"))...)
	s.awaitDrained()
	s.awaitSQL(`SELECT count(*) = 3 FROM held_records`)
	for _, order := range []string{"a", "n"} {
		head := ask[string](s, `SELECT min(id)::text FROM held_records WHERE order_id = $1`, order)
		s.operate(head, "held", "give-up", head, "--execute", "--comment", "beyond repair")
	}
	s.awaitSQL(`SELECT count(*) = 2 FROM dead_letters WHERE was_held AND blocks AND status = 'open'`)
	if got := ask[string](s, `SELECT concat_ws(' ', (SELECT projection_status FROM orders WHERE order_id = 'a'), (SELECT projection_status FROM waiting_orders WHERE order_id = 'n'))`); got != "blocked blocked" {
		t.Errorf("the orders are %s", got)
	}
	s.expect(0, "", "verify")
	end()
	s.awaitNoneHeld() // what was behind is parked
	s.addsUp()
	s.expect(0, "", "verify")
	s.operate("redriven:", "dlq", "redrive", "--all", "--execute")
	s.awaitOrder("a", 3, "ok")
	s.awaitOrder("n", 1, "ok")
	s.addsUp()
	s.expect(0, "", "verify")
}

// A rebuild holds nothing: it stops, and says where. Once the cause has gone, a rebuild decides the held records; a rollback
// brings them back.
func TestHeldRecordsAndRebuild(t *testing.T) {
	t.Parallel()
	s := newStage(t, stageConfig{})
	p := s.start()
	s.produce(amid(crowd(created), created("a"))...)
	s.awaitDrained()
	end := s.sabotage("order_rows", raises, "a")
	s.produce(amid(crowd(payment), paid("a", 2), packed("a", 3))...)
	s.awaitSQL(`SELECT count(*) = 2 FROM held_records`)
	s.awaitDrained()
	p.Stop()
	before := s.contract()

	// Triggers move with the exchange, and do not see the rebuilt tables being filled. This one does.
	s.exec(`CREATE FUNCTION spread() RETURNS event_trigger LANGUAGE plpgsql AS $$
		DECLARE made text;
		BEGIN
			FOR made IN SELECT object_identity FROM pg_event_trigger_ddl_commands() WHERE object_identity LIKE '%.order_rows' LOOP
				EXECUTE format('CREATE OR REPLACE TRIGGER sabotage BEFORE INSERT OR UPDATE ON %s FOR EACH ROW WHEN (NEW.order_id = ''a'') EXECUTE FUNCTION public.sabotage()', made);
			END LOOP;
		END $$;
		CREATE EVENT TRIGGER spread ON ddl_command_end WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION spread()`)
	code, stdout, stderr := s.command("rebuild", "--comment", "test")
	offset := ask[int64](s, `SELECT kafka_offset FROM order_rows WHERE order_id = 'a'`)
	if said := stdout + stderr; code != 1 || !strings.Contains(said, fmt.Sprintf("%s-0 offset %d", s.topic, offset)) || !strings.Contains(said, "a rule of ours") {
		t.Errorf("rebuild: exit code %d, offset %d\n%s", code, offset, said)
	}
	if now := s.contract(); now != before || ask[int](s, `SELECT count(*) FROM held_records`) != 2 {
		t.Errorf("a rebuild that failed has changed something: %s, and it was %s", now, before)
	}
	s.exec(`DROP EVENT TRIGGER spread`)
	end()

	if r := s.rebuild(0, "--max-diff", "1"); r.Status != "swapped" {
		t.Errorf("%+v", r)
	}
	if got := s.operate("[]", "held", "list", "-o", "json"); strings.TrimSpace(got) != "[]" {
		t.Errorf("held after the exchange: %s", got)
	}
	s.judge()
	if r := s.rebuild(0, "rollback"); r.Status != "swapped" {
		t.Errorf("%+v", r)
	}
	s.operate("a rule of ours", "held", "list")
	if c := s.counts(); c[projection.Held] != 2 {
		t.Errorf("counts after the rollback: %v", c)
	}
	s.addsUp()
	s.start()
	s.awaitNoneHeld()
	s.judge()
}
