package pgstore_test

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/orderprojector/orderprojector/projection"
)

// Every run of the tests checks the same cases. `make test-long` checks many others.
func init() {
	for name, value := range map[string]string{"rapid.checks": "60", "rapid.seed": "1"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
}

// hostile makes a record of the kinds that somebody may put on the topic by accident or in anger.
func hostile(rnd *rand.Rand, log projection.TopicPartition, offset int64, orderID string) projection.Record {
	rec := projection.Record{TopicPartition: log, Offset: offset, Key: []byte(orderID), Timestamp: time.Unix(1_700_000_000, 0)}
	data := `{"customer_id":"c","total":{"amount":%s,"currency":"EUR"}}`
	event := func(version, amount string) []byte {
		return fmt.Appendf(nil, `{"event_id":"h-%d","order_id":%q,"type":"OrderCreated.v1","version":%s,"occurred_at":"2026-01-01T10:00:00Z","data":%s}`,
			offset, orderID, version, fmt.Sprintf(data, amount))
	}
	numbers := []string{
		"1e400", "-0", "9223372036854775807", "9223372036854775808", strings.Repeat("9", 20_000), "1e-" + strings.Repeat("9", 5000), "0." + strings.Repeat("0", 20_000) + "1",
		`"NaN"`, `"1.999"`, "[]", "null", `"` + strings.Repeat("1", 20_000) + `"`,
	}
	pick := func(all ...string) string { return all[rnd.IntN(len(all))] }
	switch rnd.IntN(14) {
	case 0:
		rec.Value = event(pick(numbers...), `"1.00"`)
	case 1:
		rec.Value = event("1", pick(numbers...))
	case 2:
		rec.Value = []byte(strings.Repeat(pick("[", `{"a":`, "\x00", "\xff", `"\ud800`, `\`), 50_000))
	case 3:
		rec.Value = nil
	case 4:
		rec.Value = []byte(pick("", "null", "{}", "[]", "0", `""`, "\xef\xbb\xbf{}", "{} {}"))
	case 5:
		rec.Key, rec.Value = nil, event("1", `"1.00"`)
	case 6:
		rec.Key = []byte(strings.Repeat("\x00\xff", 200))
		rec.Value = event("1", `"1.00"`)
	case 7:
		rec.Timestamp = time.UnixMilli([]int64{math.MinInt64, math.MaxInt64, -1, 0, 253_402_300_800_000}[rnd.IntN(5)])
		rec.Value = event(fmt.Sprint(1+rnd.IntN(3)), `"1.00"`)
	case 8:
		for i := range rnd.IntN(2000) {
			rec.Headers = append(rec.Headers, projection.Header{Key: pick("ce_id", "ce_type", "ce_", "\x00", "\xff", fmt.Sprint(i)), Value: []byte(pick("", "\x00", "x"))})
		}
		rec.Value = []byte("x")
	case 9:
		rec.Value = []byte(pick(`{"event_id":"\u0000","order_id":"o","version":1}`, `{"event_id":"e","order_id":"\ud83d","version":1}`,
			`{"event_id":"`+strings.Repeat("é", 300)+`","order_id":"o","type":"OrderCreated.v1","version":1,"occurred_at":"2026-01-01T10:00:00Z","data":{}}`))
	case 10:
		rec.Value = append(event("1", `"1.00"`), make([]byte, 900_000)...)
	case 11:
		rec.Value = event(fmt.Sprint(int64(math.MaxInt64)-int64(rnd.IntN(3))), `"1.00"`)
	case 12:
		rec.Control, rec.Key, rec.Value = true, nil, []byte("commit")
	default:
		rec.Value = event("2", `"1.00"`)
	}
	return rec
}

// No record and no batch makes a partition stop: whatever the records are, and whatever the database does not take of single orders,
// every record is accounted for and good orders are applied.
func TestNoRecordAndNoBatchStopsAPartition(t *testing.T) {
	store, pool := openStore(t)
	// Orders of these names are refused: by an exception, as a value, without a word, and for what was parked.
	if _, err := pool.Exec(t.Context(), `
		CREATE FUNCTION dislike() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			IF NEW.order_id LIKE 'raised-%' THEN RAISE EXCEPTION 'no'; END IF;
			IF NEW.order_id LIKE 'value-%' THEN RAISE EXCEPTION 'no' USING ERRCODE = '22000'; END IF;
			IF NEW.order_id LIKE 'lost-%' THEN RETURN NULL; END IF;
			IF NEW.order_id LIKE 'busy-%' THEN RAISE EXCEPTION 'no' USING ERRCODE = '53000'; END IF;
			IF NEW.order_id LIKE 'wrong-%' THEN RAISE EXCEPTION 'no' USING ERRCODE = 'XX000'; END IF;
			RETURN NEW;
		END $$;
		CREATE TRIGGER dislike BEFORE INSERT OR UPDATE ON order_rows FOR EACH ROW EXECUTE FUNCTION dislike();
		CREATE FUNCTION dislike_parked() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			IF NEW.order_id LIKE 'parked-%' THEN RAISE EXCEPTION 'no'; END IF;
			RETURN NEW;
		END $$;
		CREATE TRIGGER dislike_parked BEFORE INSERT ON parked_events FOR EACH ROW EXECUTE FUNCTION dislike_parked();
		CREATE FUNCTION dislike_letter() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			IF NEW.order_id LIKE 'letter-%' THEN RAISE EXCEPTION 'no'; END IF;
			RETURN NEW;
		END $$;
		CREATE TRIGGER dislike_letter BEFORE INSERT ON dead_letters FOR EACH ROW EXECUTE FUNCTION dislike_letter()`); err != nil {
		t.Fatal(err)
	}
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		rnd := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
		group := fmt.Sprintf("g-%d", round)
		log := projection.TopicPartition{Topic: "t", TopicID: projection.TopicID{byte(round), byte(round >> 8), 7}}
		p, err := projection.NewProjector(projection.ProjectorConfig{Group: group, Store: store, Older: noLog{}, RetryBase: time.Millisecond, RetryCap: 5 * time.Millisecond})
		if err != nil {
			rt.Fatal(err)
		}
		handler, _, err := p.Assign(t.Context(), projection.Assignment{TopicPartition: log, Group: group, Committed: projection.NoOffset})
		if err != nil {
			rt.Fatal(err)
		}
		versions := map[string]int{}
		kinds := []string{"raised", "value", "lost", "busy", "wrong", "parked", "letter"}
		offset, visible := int64(0), int64(0)
		for range rapid.IntRange(1, 4).Draw(rt, "batches") {
			var records []projection.Record
			for range rapid.IntRange(1, 40).Draw(rt, "records") {
				var rec projection.Record
				switch roll := rnd.IntN(10); {
				case roll < 5 || offset == 0:
					id := fmt.Sprintf("good-%d-%d", round, rnd.IntN(5))
					versions[id]++
					rec = lifeEvent(0, offset, id, min(versions[id], 3)) // a repeat from the fourth on
					rec.TopicPartition = log
				case roll < 7:
					id := fmt.Sprintf("%s-%d-%d", kinds[rnd.IntN(len(kinds))], round, rnd.IntN(2))
					rec = lifeEvent(0, offset, id, 1+rnd.IntN(3))
					if rnd.IntN(4) == 0 {
						rec.Value = fmt.Appendf(nil, `{"order_id":%q,"version":1}`, id)
					}
					rec.TopicPartition = log
				default:
					rec = hostile(rnd, log, offset, fmt.Sprintf("hostile-%d-%d", round, rnd.IntN(4)))
				}
				if !rec.Control {
					visible++
				}
				records = append(records, rec)
				offset++
			}
			began := time.Now()
			if err := handler.Handle(t.Context(), records); err != nil {
				rt.Fatal(err)
			}
			if took := time.Since(began); took > 30*time.Second {
				rt.Errorf("a batch of %d records took %s", len(records), took)
			}
		}
		var next, counted int64
		if err := pool.QueryRow(t.Context(), `SELECT next_offset, applied + duplicate + stale + conflict + parked + invalid + unsupported + illegal + ignored + held
			FROM projection_watermarks WHERE consumer_group = $1`, group).Scan(&next, &counted); err != nil {
			rt.Fatal(err)
		}
		if next != offset || counted != visible {
			rt.Errorf("watermark %d of %d, %d records are accounted for of %d", next, offset, counted, visible)
		}
		for id, version := range versions {
			var stored int
			if err := pool.QueryRow(t.Context(), `SELECT version FROM order_rows WHERE order_id = $1`, id).Scan(&stored); err != nil || stored != min(version, 3) {
				rt.Errorf("order %s is at version %d (%v), want %d", id, stored, err, min(version, 3))
			}
		}
	})
}
