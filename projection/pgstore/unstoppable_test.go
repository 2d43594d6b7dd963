package pgstore_test

import (
	"context"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/reference"
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
	switch rnd.IntN(17) {
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
		rec.Value = []byte(pick(fmt.Sprintf(`{"event_id":"\u0000","order_id":%q,"version":1}`, orderID), `{"event_id":"e","order_id":"\ud83d","version":1}`,
			fmt.Sprintf(`{"event_id":"`+strings.Repeat("é", 300)+`","order_id":%q,"type":"OrderCreated.v1","version":1,"occurred_at":"2026-01-01T10:00:00Z","data":{}}`, orderID)))
	case 10:
		rec.Value = append(event("1", `"1.00"`), make([]byte, 900_000)...)
	case 11:
		rec.Value = event(fmt.Sprint(int64(math.MaxInt64)-int64(rnd.IntN(3))), `"1.00"`)
	case 12: // keys twice
		twice := pick(`"version":1`, `"event_id":"other"`, fmt.Sprintf(`"order_id":%q`, orderID+"x"), `"data":{}`)
		rec.Value = append([]byte("{"+twice+","), event("1", `"1.00"`)[1:]...)
	case 13: // keys missing
		missing := pick(`"event_id"`, `"order_id"`, `"type"`, `"version"`, `"occurred_at"`, `"data"`, `"customer_id"`, `"amount"`)
		rec.Value = []byte(strings.Replace(string(event("1", `"1.00"`)), missing, `"no"`, 1))
	case 14: // an ID that is as long as it may be, or too long by half a character
		orderID += strings.Repeat("é", max(0, projection.MaxIDBytes+rnd.IntN(2)-len(orderID))/2) + pick("", "x")
		rec.Value = event("1", `"1.00"`)
		rec.Key = []byte(orderID)
	case 15:
		rec.Control, rec.Key, rec.Value = true, nil, []byte("commit")
	default:
		rec.Value = event("2", `"1.00"`)
	}
	return rec
}

// No record and no batch makes a partition stop: whatever the records are, and whatever the database does not take of single orders,
// every record is accounted for, and the rows and letters of all other orders are those of an independent fold.
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
		c := newCrowd(t, rt, store, round)
		for range rapid.IntRange(1, 4).Draw(rt, "batches") {
			c.batch(rapid.IntRange(0, 1).Draw(rt, "partition"), rapid.IntRange(1, 40).Draw(rt, "records"))
		}
		c.compare(pool)
	})
}

// crowd is two partitions of a topic, where good orders share batches with hostile records and with orders that the database refuses.
type crowd struct {
	t        *testing.T
	rt       *rapid.T
	rnd      *rand.Rand
	round    int
	group    string
	logs     [2]projection.TopicPartition
	handlers [2]projection.PartitionHandler
	records  [2][]projection.Record // by offset
	visible  [2]int64
	versions map[string]int
	fold     *reference.Fold
	refused  map[[2]int64]bool // partition and offset of records of orders that the database refuses
}

func newCrowd(t *testing.T, rt *rapid.T, store projection.Store, round int) *crowd {
	c := &crowd{
		t: t, rt: rt, rnd: rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1)), round: round, group: fmt.Sprintf("g-%d", round),
		versions: map[string]int{}, fold: reference.NewFold(), refused: map[[2]int64]bool{},
	}
	p, err := projection.NewProjector(projection.ProjectorConfig{Group: c.group, Store: store, Older: c, RetryBase: time.Millisecond, RetryCap: 5 * time.Millisecond})
	if err != nil {
		rt.Fatal(err)
	}
	for i := range c.logs {
		c.logs[i] = projection.TopicPartition{Topic: "t", TopicID: projection.TopicID{byte(round), byte(round >> 8), 7}, Partition: int32(i)}
		if c.handlers[i], _, err = p.Assign(t.Context(), projection.Assignment{TopicPartition: c.logs[i], Group: c.group, Committed: projection.NoOffset}); err != nil {
			rt.Fatal(err)
		}
	}
	return c
}

// ReadRecords implements projection.RecordReader.
func (c *crowd) ReadRecords(_ context.Context, log projection.TopicPartition, offsets []int64, found func(projection.Record)) error {
	for _, offset := range offsets {
		found(c.records[log.Partition][offset])
	}
	return nil
}

// good names an order that the database takes. One name is as long as a name may be, in characters of three bytes.
func (c *crowd) good() string {
	id := fmt.Sprintf("good-%d-%d", c.round, c.rnd.IntN(5))
	if strings.HasSuffix(id, "-4") {
		id += strings.Repeat("注", (projection.MaxIDBytes-len(id))/3)
	}
	return id
}

// life is the next event of a good order, or one again, written anew, or ahead.
func (c *crowd) life(log projection.TopicPartition, offset int64) projection.Record {
	id, note := c.good(), ""
	version := c.versions[id] + 1
	switch c.rnd.IntN(8) {
	case 0:
		version = max(1, version-1)
	case 1:
		version += 1 + c.rnd.IntN(2)
	case 2:
		c.versions[id]++
		if c.rnd.IntN(8) == 0 {
			note = strings.Repeat("n", 1_000_000)
		}
	default:
		c.versions[id]++
	}
	typ, data := "OrderAmended.v1", `"total":{"amount":"%d.00","currency":"EUR"}`
	if version == 1 {
		typ, data = "OrderCreated.v1", `"customer_id":"c","total":{"amount":"%d.00","currency":"EUR"}`
	}
	return projection.Record{
		TopicPartition: log, Offset: offset, Key: []byte(id), Timestamp: time.Unix(1_700_000_000, 0),
		Value: fmt.Appendf(nil, `{"event_id":"v-%d",%s"order_id":%q,"type":%q,"version":%d,"occurred_at":"2026-01-01T10:00:00Z","data":{"note":%q,%s}}`,
			version, strings.Repeat(" ", c.rnd.IntN(2)), id, typ, version, note, fmt.Sprintf(data, version)),
	}
}

// batch lets a member handle some records.
func (c *crowd) batch(partition, size int) {
	log := c.logs[partition]
	kinds := []string{"raised", "value", "lost", "busy", "wrong", "parked", "letter"}
	var records []projection.Record
	for range size {
		offset := int64(len(c.records[partition]))
		var rec projection.Record
		switch roll := c.rnd.IntN(10); {
		case roll < 5:
			rec = c.life(log, offset)
		case roll < 7:
			id := fmt.Sprintf("%s-%d-%d", kinds[c.rnd.IntN(len(kinds))], c.round, c.rnd.IntN(2))
			rec = lifeEvent(log.Partition, offset, id, 1+c.rnd.IntN(3))
			if c.rnd.IntN(4) == 0 {
				rec.Value = fmt.Appendf(nil, `{"order_id":%q,"version":1}`, id)
			}
			rec.TopicPartition = log
			c.refused[[2]int64{int64(partition), offset}] = true
		case roll == 7:
			rec = hostile(c.rnd, log, offset, c.good())
		default:
			rec = hostile(c.rnd, log, offset, fmt.Sprintf("hostile-%d-%d", c.round, c.rnd.IntN(4)))
		}
		if !rec.Control {
			c.visible[partition]++
		}
		c.fold.Add(rec)
		c.records[partition] = append(c.records[partition], rec)
		records = append(records, rec)
	}
	began := time.Now()
	if err := c.handlers[partition].Handle(c.t.Context(), records); err != nil {
		c.rt.Fatal(err)
	}
	if took := time.Since(began); took > 30*time.Second {
		c.rt.Errorf("a batch of %d records took %s", len(records), took)
	}
}

// compare holds the accounts, the rows and the letters against an independent fold.
func (c *crowd) compare(pool *pgxpool.Pool) {
	for i := range c.logs {
		if len(c.records[i]) == 0 {
			continue
		}
		var next, counted int64
		if err := pool.QueryRow(c.t.Context(), `SELECT next_offset, applied + duplicate + stale + conflict + parked + invalid + unsupported + illegal + ignored + held
			FROM projection_watermarks WHERE consumer_group = $1 AND kafka_partition = $2`, c.group, i).Scan(&next, &counted); err != nil {
			c.rt.Fatal(err)
		}
		if next != int64(len(c.records[i])) || counted != c.visible[i] {
			c.rt.Errorf("partition %d: watermark %d of %d, %d records are accounted for of %d", i, next, len(c.records[i]), counted, c.visible[i])
		}
	}
	names := regexp.MustCompile(fmt.Sprintf("^(good|hostile)-%d-", c.round))
	folded := c.fold.Result()
	var rows, letters []string
	for _, o := range folded.Orders {
		if names.MatchString(o.OrderID) {
			rows = append(rows, fmt.Sprint(o.OrderID, " ", o.Version, " ", o.Status, " ", o.State, " ", o.TotalMinor, " ", o.LastEventID, " ", o.At.Partition, " ", o.At.Offset))
		}
	}
	for _, l := range folded.DeadLetters {
		if !c.refused[[2]int64{int64(l.Log.Partition), l.Offset}] {
			letters = append(letters, fmt.Sprint(l.Log.Partition, " ", l.Offset, " ", l.OrderID, " ", l.Version, " ", l.Reason, " ", l.Status, " ", l.Blocks))
		}
	}
	if diff := cmp.Diff(rows, c.lines(pool, `SELECT concat_ws(' ', order_id, version, projection_status, state, total_minor, last_event_id, kafka_partition, kafka_offset)
		FROM order_rows WHERE order_id ~ $1 AND (version > 0 OR projection_status <> 'ok') ORDER BY order_id`, names.String())); diff != "" {
		c.rt.Errorf("rows (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(letters, c.lines(pool, `SELECT concat_ws(' ', kafka_partition, kafka_offset, coalesce(order_id, ''), coalesce(version, 0), reason, status, blocks::text)
		FROM dead_letters WHERE consumer_group = $1 AND coalesce(order_id, '') !~ '^(raised|value|lost|busy|wrong|parked|letter)-' ORDER BY kafka_partition, kafka_offset`, c.group)); diff != "" {
		c.rt.Errorf("letters (-want +got):\n%s", diff)
	}
}

func (c *crowd) lines(pool *pgxpool.Pool, sql string, arg any) []string {
	rows, err := pool.Query(c.t.Context(), sql, arg)
	if err != nil {
		c.rt.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		c.rt.Fatal(err)
	}
	if len(lines) == 0 {
		return nil
	}
	return lines
}
