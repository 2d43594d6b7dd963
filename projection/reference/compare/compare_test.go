//go:build unix

package compare_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/generate"
	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/reference"
	"github.com/orderprojector/orderprojector/projection/reference/compare"
	"github.com/orderprojector/orderprojector/test/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

const group = "g"

// foldTraffic folds faulty traffic of two partitions.
func foldTraffic(t *testing.T) *reference.Result {
	t.Helper()
	stream, err := generate.New(generate.Config{Seed: 6, Orders: 150, Rates: generate.Faulty(), Long: 30, Amendments: 100})
	if err != nil {
		t.Fatal(err)
	}
	fold := reference.NewFold()
	offsets := map[projection.TopicPartition]int64{}
	for g := range stream.All() {
		log := projection.TopicPartition{Topic: "orders.events", TopicID: projection.TopicID{9}}
		log.Partition = int32(g.PartitionKey[len(g.PartitionKey)-1] % 2)
		fold.Add(projection.Record{TopicPartition: log, Offset: offsets[log], Key: g.Key, Value: g.Value})
		offsets[log]++
	}
	return fold.Result()
}

// store writes what a projector would have written.
func store(t *testing.T, db *pgx.Conn, result *reference.Result) {
	t.Helper()
	batch := &pgx.Batch{}
	for _, o := range result.Orders {
		var ids, types, states []string
		var versions, offsets []int64
		var times []time.Time
		var digests [][]byte
		var partitions []int32
		// The oldest entries of a long order are in the archive.
		archived := max(0, len(o.Ledger)-64)
		for _, e := range o.Ledger[:archived] {
			batch.Queue(`INSERT INTO order_ledger_archive VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
				o.OrderID, e.Version, e.EventID, e.Type, e.State, e.OccurredAt, e.Digest[:], e.Partition, e.Offset)
		}
		for _, e := range o.Ledger[archived:] {
			versions, offsets, partitions = append(versions, e.Version), append(offsets, e.Offset), append(partitions, e.Partition)
			ids, types, states = append(ids, e.EventID), append(types, e.Type), append(states, e.State)
			times, digests = append(times, e.OccurredAt), append(digests, e.Digest[:])
		}
		var waiting *int64
		if o.Status != "ok" {
			waiting = &o.WaitingForVersion
		}
		batch.Queue(`INSERT INTO order_rows (order_id, version, customer_id, state, currency, total_minor, paid_minor, refunded_minor,
			created_at, updated_at, projected_at, last_event_id, projection_status, waiting_for_version,
			kafka_topic, kafka_partition, kafka_offset, archived, ledger_versions, ledger_event_ids, ledger_types, ledger_states,
			ledger_times, ledger_digests, ledger_partitions, ledger_offsets)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, now(), $11, $12, $13, $14, $15, $16, $17,
			coalesce($18, '{}'::bigint[]), coalesce($19, '{}'::text[]), coalesce($20, '{}'::text[]), coalesce($21, '{}'::text[]),
			coalesce($22, '{}'::timestamptz[]), coalesce($23, '{}'::bytea[]), coalesce($24, '{}'::int[]), coalesce($25, '{}'::bigint[]))`,
			o.OrderID, o.Version, o.CustomerID, o.State, o.Currency, o.TotalMinor, o.PaidMinor, o.RefundedMinor,
			o.CreatedAt, o.UpdatedAt, o.LastEventID, o.Status, waiting, o.At.Topic, o.At.Partition, o.At.Offset, archived,
			versions, ids, types, states, times, digests, partitions, offsets)
	}
	for _, p := range result.Parked {
		batch.Queue(`INSERT INTO parked_events (order_id, version, event_id, digest, type, occurred_at, consumer_group, kafka_topic,
			topic_id, kafka_partition, kafka_offset, kafka_timestamp, value, headers)
			VALUES ($1, $2, $3, $4, '', now(), $5, $6, $7, $8, $9, now(), '', '[]')`,
			p.OrderID, p.Version, p.EventID, p.Digest[:], group, p.At.Topic, [16]byte{9}, p.At.Partition, p.At.Offset)
	}
	for _, l := range result.DeadLetters {
		batch.Queue(`INSERT INTO dead_letters (consumer_group, kafka_topic, topic_id, kafka_partition, kafka_offset, kafka_timestamp,
			headers, order_id, version, event_id, reason, detail, blocks, status)
			VALUES ($1, $2, $3, $4, $5, now(), '[]', nullif($6, ''), nullif($7, 0), nullif($8, ''), $9, '', $10, $11)`,
			group, l.Log.Topic, [16]byte(l.Log.TopicID), l.Log.Partition, l.Offset, l.OrderID, l.Version, l.EventID,
			l.Reason.String(), l.Blocks, l.Status)
	}
	for log, p := range result.Partitions {
		batch.Queue(`INSERT INTO projection_watermarks (consumer_group, kafka_topic, topic_id, kafka_partition, next_offset,
			ignored, invalid, duplicate, stale, conflict, parked, unsupported, illegal, applied)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)`,
			group, log.Topic, [16]byte(log.TopicID), log.Partition, p.NextOffset,
			p.Counts[projection.Ignored], p.Counts[projection.Invalid], p.Counts[projection.Duplicate], p.Counts[projection.Stale],
			p.Counts[projection.Conflict], p.Counts[projection.Parked], p.Counts[projection.Unsupported],
			p.Counts[projection.Illegal], p.Counts[projection.Applied])
	}
	// Nobody else's rows are looked at.
	batch.Queue(`INSERT INTO projection_watermarks (consumer_group, kafka_topic, topic_id, kafka_partition, next_offset, applied)
		VALUES ('other', 'orders.events', $1, 0, 7, 7)`, [16]byte{9})
	// The group may own a partition that is empty.
	batch.Queue(`INSERT INTO projection_watermarks (consumer_group, kafka_topic, topic_id, kafka_partition, next_offset)
		VALUES ($1, 'orders.events', $2, 7, 3)`, group, [16]byte{9})
	if err := db.SendBatch(t.Context(), batch).Close(); err != nil {
		t.Fatal(err)
	}
}

func TestCompare(t *testing.T) {
	t.Parallel()
	db, err := pgx.Connect(t.Context(), testenv.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(context.Background())
	result := foldTraffic(t)
	store(t, db, result)

	report, err := compare.Compare(t.Context(), result, db, group)
	if err != nil {
		t.Fatal(err)
	}
	if !report.Equal() {
		t.Fatalf("%d differences in equal data, the first: %s", report.Total, report.Differences[0])
	}
	for _, relation := range []string{"orders", "waiting_orders", "order_events", "parked_events", "dead_letters", "projection_watermarks"} {
		if report.Rows[relation] == 0 {
			t.Errorf("no row of %s was compared", relation)
		}
	}

	for _, c := range []struct {
		change string // made in the database
		want   string // the one difference, by relation and column
	}{
		{`UPDATE order_rows SET customer_id = 'x' WHERE order_id = $1`, "orders customer_id"},
		{`UPDATE order_rows SET state = 'paid' WHERE order_id = $1`, "orders state"},
		{`UPDATE order_rows SET version = 1 WHERE order_id = $1`, "orders version"},
		{`UPDATE order_rows SET currency = 'XXX' WHERE order_id = $1`, "orders currency"},
		{`UPDATE order_rows SET total_minor = total_minor + 1 WHERE order_id = $1`, "orders total_minor"},
		{`UPDATE order_rows SET paid_minor = paid_minor + 1 WHERE order_id = $1`, "orders paid_minor"},
		{`UPDATE order_rows SET refunded_minor = refunded_minor - 1 WHERE order_id = $1`, "orders refunded_minor"},
		{`UPDATE order_rows SET created_at = created_at + interval '1 microsecond' WHERE order_id = $1`, "orders created_at"},
		{`UPDATE order_rows SET updated_at = updated_at + interval '1 microsecond' WHERE order_id = $1`, "orders updated_at"},
		{`UPDATE order_rows SET last_event_id = 'x' WHERE order_id = $1`, "orders last_event_id"},
		{`UPDATE order_rows SET kafka_offset = kafka_offset + 1 WHERE order_id = $1`, "orders kafka coordinates"},
		{`UPDATE order_rows SET projection_status = 'waiting', waiting_for_version = 99 WHERE order_id = $1`,
			"orders projection_status, orders waiting_for_version"},
		{`UPDATE order_rows SET ledger_event_ids[2] = 'x' WHERE order_id = $1`, "order_events event_id"},
		{`UPDATE order_rows SET ledger_types[2] = 'x' WHERE order_id = $1`, "order_events type"},
		{`UPDATE order_rows SET ledger_states[2] = 'x' WHERE order_id = $1`, "order_events state"},
		{`UPDATE order_rows SET ledger_times[2] = '2000-01-01' WHERE order_id = $1`, "order_events occurred_at"},
		{`UPDATE order_rows SET ledger_digests[2] = 'x' WHERE order_id = $1`, "order_events digest"},
		{`UPDATE order_rows SET ledger_partitions[2] = 9 WHERE order_id = $1`, "order_events kafka_partition"},
		{`UPDATE order_rows SET ledger_offsets[2] = 9999 WHERE order_id = $1`, "order_events kafka_offset"},
		{`DELETE FROM order_ledger_archive WHERE version = 3 AND order_id = (SELECT max(order_id) FROM order_ledger_archive) AND $1 <> ''`, "order_events row missing"},
		{`INSERT INTO order_ledger_archive SELECT order_id, 1000, 'x', type, state, occurred_at, digest, 0, 0
			FROM order_ledger_archive WHERE version = 3 AND $1 <> '' LIMIT 1`, "order_events row there"},
		{`INSERT INTO order_rows SELECT (jsonb_populate_record(r, '{"order_id":"zzz","ledger_versions":[],"ledger_event_ids":[],
			"ledger_types":[],"ledger_states":[],"ledger_times":[],"ledger_digests":[],"ledger_partitions":[],"ledger_offsets":[]}')).*
			FROM order_rows r WHERE order_id = $1`, "orders row there"},
		{`DELETE FROM order_rows WHERE version = 0 AND order_id = (SELECT max(order_id) FROM waiting_orders) AND $1 <> ''`,
			"waiting_orders row missing"},
		{`UPDATE order_rows SET projection_status = CASE projection_status WHEN 'waiting' THEN 'blocked' ELSE 'waiting' END
			WHERE version = 0 AND order_id = (SELECT max(order_id) FROM waiting_orders) AND $1 <> ''`, "waiting_orders projection_status"},
		{`DELETE FROM parked_events WHERE ctid = (SELECT ctid FROM parked_events LIMIT 1) AND $1 <> ''`, "parked_events row missing"},
		{`UPDATE parked_events SET kafka_offset = 9999 WHERE ctid = (SELECT ctid FROM parked_events LIMIT 1) AND $1 <> ''`,
			"parked_events kafka coordinates"},
		{`UPDATE parked_events SET digest = decode(repeat('ff', 16), 'hex') WHERE ctid = (SELECT ctid FROM parked_events LIMIT 1) AND $1 <> ''`,
			"parked_events row missing, parked_events row there"},
		{`DELETE FROM dead_letters WHERE id = 1 AND $1 <> ''`, "dead_letters row missing"},
		{`UPDATE dead_letters SET topic_id = 'ffffffff-ffff-ffff-ffff-ffffffffffff' WHERE id = 1 AND $1 <> ''`, "dead_letters row missing, dead_letters row there"},
		{`UPDATE dead_letters SET status = 'redriven' WHERE id = 1 AND $1 <> ''`, "dead_letters status"},
		{`UPDATE dead_letters SET order_id = 'x' WHERE id = 1 AND $1 <> ''`, "dead_letters order_id"},
		{`UPDATE dead_letters SET event_id = 'x' WHERE id = 1 AND $1 <> ''`, "dead_letters event_id"},
		{`UPDATE dead_letters SET version = 77 WHERE id = 1 AND $1 <> ''`, "dead_letters version"},
		{`UPDATE dead_letters SET blocks = NOT blocks WHERE id = 1 AND $1 <> ''`, "dead_letters blocks"},
		{`UPDATE dead_letters SET reason = CASE reason WHEN 'illegal' THEN 'invalid' ELSE 'illegal' END WHERE id = 1 AND $1 <> ''`,
			"dead_letters reason"},
		{`UPDATE projection_watermarks SET next_offset = next_offset + 1 WHERE kafka_partition = 1 AND $1 <> ''`,
			"projection_watermarks next_offset"},
		{`UPDATE projection_watermarks SET applied = applied + 1 WHERE kafka_partition = 7 AND $1 <> ''`, "projection_watermarks applied"},
		{`UPDATE projection_watermarks SET ignored = ignored + 1, invalid = invalid + 1, duplicate = duplicate + 1, stale = stale + 1,
			conflict = conflict + 1, parked = parked + 1, unsupported = unsupported + 1, illegal = illegal + 1
			WHERE kafka_partition = 1 AND $1 <> ''`,
			"projection_watermarks ignored, projection_watermarks invalid, projection_watermarks duplicate, projection_watermarks stale, " +
				"projection_watermarks conflict, projection_watermarks parked, projection_watermarks unsupported, projection_watermarks illegal"},
		{`DELETE FROM projection_watermarks WHERE kafka_partition = 1 AND $1 <> ''`, "projection_watermarks row missing"},
	} {
		err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
			tag, err := tx.Exec(t.Context(), c.change, refundedOrder(t, result))
			if err != nil {
				return err
			}
			if tag.RowsAffected() == 0 {
				return fmt.Errorf("touched no row")
			}
			report, err := compare.Compare(t.Context(), result, tx, group)
			if err != nil {
				return err
			}
			var got []string
			for _, d := range report.Differences {
				got = append(got, strings.Join([]string{d.Relation, columnOf(d)}, " "))
				if d.String() == "" {
					t.Error("a difference says nothing")
				}
			}
			if text := strings.Join(got, ", "); text != c.want || report.Total != len(got) {
				t.Errorf("%s\nfound %s\nwant  %s", c.change, text, c.want)
			}
			return errRollback
		})
		if !errors.Is(err, errRollback) {
			t.Errorf("%s: %v", c.change, err)
		}
	}

	if _, err := db.Exec(t.Context(), `DELETE FROM order_rows`); err != nil {
		t.Fatal(err)
	}
	report, err = compare.Compare(t.Context(), result, db, group)
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Differences) != compare.Limit || report.Total <= compare.Limit {
		t.Errorf("%d differences are listed of %d", len(report.Differences), report.Total)
	}
	if _, err := db.Exec(t.Context(), `DROP TABLE dead_letters CASCADE`); err != nil {
		t.Fatal(err)
	}
	if _, err := compare.Compare(t.Context(), result, db, group); err == nil {
		t.Error("a missing table is no error")
	}
}

var errRollback = errors.New("rollback")

func columnOf(d compare.Difference) string {
	if d.Column != "" {
		return d.Column
	}
	return "row " + d.Got
}

// refundedOrder is a quiet order in which every amount is positive.
func refundedOrder(t *testing.T, result *reference.Result) string {
	t.Helper()
	for _, o := range result.Orders {
		if o.State == "refunded" && o.Status == "ok" && o.RefundedMinor > 0 && len(o.Ledger) < 64 {
			return o.OrderID
		}
	}
	t.Fatal("no refunded order")
	return ""
}
