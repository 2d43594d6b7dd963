package pgstore

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/orderprojector/orderprojector/projection"
)

//go:embed queries/*.sql
var queryFiles embed.FS

func statement(name string) string {
	text, err := queryFiles.ReadFile("queries/" + name + ".sql")
	if err != nil {
		panic(err) // a name in this file that has no file beside it: caught by any test
	}
	return string(text)
}

var (
	sqlRowsRead         = statement("rows_read")
	sqlRowsLock         = statement("rows_lock")
	sqlRowsReserve      = statement("rows_reserve")
	sqlRowsInsert       = statement("rows_insert")
	sqlRowsUpdate       = statement("rows_update")
	sqlRowsAppend       = statement("rows_append")
	sqlArchiveAdd       = statement("archive_add")
	sqlArchiveRead      = statement("archive_read")
	sqlStuckFind        = statement("stuck_find")
	sqlStuckRead        = statement("stuck_read")
	sqlParkedRead       = statement("parked_read")
	sqlParkedAdd        = statement("parked_add")
	sqlParkedRemove     = statement("parked_remove")
	sqlLettersAdd       = statement("letters_add")
	sqlLettersSupersede = statement("letters_supersede")
	sqlWatermarkLock    = statement("watermark_lock")
	sqlWatermarkInsert  = statement("watermark_insert")
	sqlWatermarkAdvance = statement("watermark_advance")
	sqlWatermarkOthers  = statement("watermark_others")
	sqlDrainable        = statement("drainable")
)

// sweepLock is the advisory lock, held to the end of a transaction, that makes one member at a time sweep.
const sweepLock = 0x6f70_7377_6565_70 // "opsweep"

// Store is the write side. It is safe for concurrent use; each transaction
// takes one connection of the pool.
type Store struct {
	pool      *pgxpool.Pool
	txOptions pgx.TxOptions
	onLetters func([]*projection.DeadLetter)
}

var _ projection.Store = (*Store)(nil)

// New returns a store over a pool whose configuration went through PrepareWriter.
func New(pool *pgxpool.Pool) *Store {
	return &Store{pool: pool, txOptions: transactionOptions(pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})}
}

// OnLetters has note told of the dead letters of each transaction, after its commit. It is called before the store is used.
func (s *Store) OnLetters(note func([]*projection.DeadLetter)) { s.onLetters = note }

// InTx implements projection.Store. Connections that are of no use any more are dropped: those to a server that
// cannot be heard or does not take writes, and those whose prepared statements are void.
func (s *Store) InTx(ctx context.Context, work func(context.Context, projection.Tx) error) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return &acquireError{err}
	}
	known := conn.Conn().PgConn().CustomData()
	_, used := known[usedBefore]
	own := &tx{subject: &projectedOrders}
	err = s.transact(ctx, conn.Conn(), own, work)
	if err == nil {
		known[usedBefore] = true
	} else if sqlState(err) == "" && conn.Conn().IsClosed() {
		err = &connectionError{err}
	}
	conn.Release()
	switch {
	case err == nil:
		if s.onLetters != nil && len(own.letters) > 0 {
			s.onLetters(own.letters)
		}
		return nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		// The server would have ended what takes too long: it cannot be heard.
		// What swallowed this connection may have swallowed the idle ones, and finding
		// that out one by one takes its time.
		s.pool.Reset()
	case sqlState(err) == readOnly:
		s.pool.Reset() // connecting anew looks for a server that takes writes
	case isStale(err):
		// A migration or a pooler did this to every connection.
		s.pool.Reset()
		if !used {
			return &freshConnectionError{err}
		}
	}
	return err
}

// transact tells a COMMIT without an answer from every other failure.
func (s *Store) transact(ctx context.Context, conn *pgx.Conn, own *tx, work func(context.Context, projection.Tx) error) error {
	t, err := conn.BeginTx(ctx, s.txOptions)
	if err != nil {
		return err
	}
	defer func() { _ = t.Rollback(ctx) }()
	own.Tx = t
	if err := work(ctx, own); err != nil {
		return err
	}
	if err := t.Commit(ctx); err != nil {
		return &commitError{err}
	}
	return nil
}

// usedBefore marks connections on which a transaction has worked.
const usedBefore = "orderprojector used before"

// tx implements projection.Tx.
type tx struct {
	pgx.Tx
	subject *subject
	letters []*projection.DeadLetter // that were added
}

func watermarkArgs(key projection.WatermarkKey) []any {
	return []any{key.Group, key.Topic, uuid.UUID(key.TopicID), key.Partition}
}

func (t *tx) Watermark(ctx context.Context, key projection.WatermarkKey) (w projection.Watermark, found bool, err error) {
	into := []any{&w.NextOffset, &w.Generation}
	for i := range w.Counts {
		into = append(into, &w.Counts[i]) // as the statement has them
	}
	into = append(into, &w.SkipFrom, &w.SkipTo)
	err = t.QueryRow(ctx, sqlWatermarkLock, watermarkArgs(key)...).Scan(into...)
	if errors.Is(err, pgx.ErrNoRows) {
		return w, false, nil
	}
	return w, err == nil, err
}

func (t *tx) InsertWatermark(ctx context.Context, key projection.WatermarkKey, nextOffset int64) error {
	_, err := t.Exec(ctx, sqlWatermarkInsert, append(watermarkArgs(key), nextOffset)...)
	return err
}

func (t *tx) OtherTopicIDs(ctx context.Context, key projection.WatermarkKey) ([]projection.TopicID, error) {
	rows, err := t.Query(ctx, sqlWatermarkOthers, watermarkArgs(key)...)
	if err != nil {
		return nil, err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	others := make([]projection.TopicID, len(ids))
	for i, id := range ids {
		others[i] = projection.TopicID(id)
	}
	return others, err
}

func (t *tx) AdvanceWatermark(ctx context.Context, key projection.WatermarkKey, nextOffset int64, counts projection.Counts, lost int64) error {
	args := append(watermarkArgs(key), nextOffset, lost)
	for _, n := range counts {
		args = append(args, n)
	}
	tag, err := t.Exec(ctx, sqlWatermarkAdvance, args...)
	if err == nil && tag.RowsAffected() != 1 {
		err = fmt.Errorf("the watermark of %s is gone", key.TopicPartition)
	}
	return err
}

func (t *tx) Rows(ctx context.Context, orderIDs []string) (map[string]*projection.Row, error) {
	return t.rows(ctx, sqlRowsRead, orderIDs, nil)
}

func (t *tx) rows(ctx context.Context, sql string, orderIDs []string, into map[string]*projection.Row) (map[string]*projection.Row, error) {
	if into == nil {
		into = make(map[string]*projection.Row, len(orderIDs))
	}
	rows, err := t.Query(ctx, sql, pgx.QueryResultFormats{pgx.BinaryFormatCode}, t.keys(orderIDs))
	return into, readRows(rows, err, into)
}

func (t *tx) LockRows(ctx context.Context, orderIDs []string) (map[string]*projection.Row, error) {
	found, err := t.rows(ctx, sqlRowsLock, orderIDs, nil)
	if err != nil || len(found) == len(orderIDs) {
		return found, err
	}
	missing := make([]string, 0, len(orderIDs)-len(found))
	for _, id := range orderIDs {
		if found[id] == nil {
			missing = append(missing, id)
		}
	}
	if _, err := t.Exec(ctx, sqlRowsReserve, missing); err != nil {
		return nil, err
	}
	return t.rows(ctx, sqlRowsLock, missing, found)
}

func (t *tx) Write(ctx context.Context, writes []*projection.RowWrite) ([]bool, error) {
	inserts, appends, updates := changes{kind: &changeKinds[anyChange]}, changes{kind: &changeKinds[oneEvent]}, changes{kind: &changeKinds[anyChange]}
	for i, w := range writes {
		c := &updates
		switch {
		case w.Insert:
			c = &inserts
		case isOneEvent(w):
			c = &appends
		}
		c.writes, c.ords = writes, append(c.ords, int32(i))
	}
	held := make([]bool, len(writes))
	if err := t.change(ctx, sqlRowsInsert, inserts, held); err != nil {
		return nil, fmt.Errorf("inserting: %w", err)
	}
	if err := t.change(ctx, sqlRowsAppend, appends, held); err != nil {
		return nil, fmt.Errorf("appending: %w", err)
	}
	if err := t.change(ctx, sqlRowsUpdate, updates, held); err != nil {
		return nil, fmt.Errorf("updating: %w", err)
	}
	return held, t.archive(ctx, writes, held)
}

// change runs a statement that returns the order IDs of the rows that it touched, and marks those.
func (t *tx) change(ctx context.Context, sql string, c changes, held []bool) (err error) {
	if len(c.ords) == 0 {
		return nil
	}
	if c.element, err = t.typeOID(ctx, c.kind.name); err != nil {
		return err
	}
	c.buffer = bufferOf(t.Conn())
	rows, err := t.Query(ctx, sql, pgx.QueryResultFormats{pgx.BinaryFormatCode}, c)
	if err != nil {
		return err
	}
	defer rows.Close()
	at := 0
	for rows.Next() {
		if at = c.find(rows.RawValues()[0], at); at < 0 {
			return fmt.Errorf("the statement returned order %q, which it was not given", rows.RawValues()[0])
		}
		held[c.ords[at]] = true
	}
	return rows.Err()
}

func collect[T any](ctx context.Context, t *tx, sql string, args ...any) ([]T, error) {
	rows, err := t.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[T])
}

// archive stores what left the rows whose guard held.
func (t *tx) archive(ctx context.Context, writes []*projection.RowWrite, held []bool) error {
	var (
		ids, events, types, states []string
		versions, offsets          []int64
		times                      []*time.Time
		digests                    [][]byte
		partitions                 []int32
	)
	for i, w := range writes {
		if !held[i] {
			continue
		}
		for j := range w.Archive {
			e := &w.Archive[j]
			ids, versions, events = append(ids, w.Row.OrderID), append(versions, e.Version), append(events, e.EventID)
			types, states = append(types, e.Type), append(states, string(e.State))
			if e.Skipped() {
				times, digests = append(times, nil), append(digests, nil)
			} else {
				times, digests = append(times, &e.OccurredAt), append(digests, e.Digest[:])
			}
			partitions, offsets = append(partitions, e.Partition), append(offsets, e.Offset)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	if _, err := t.Exec(ctx, sqlArchiveAdd, ids, versions, events, types, states, times, digests, partitions, offsets); err != nil {
		return fmt.Errorf("archiving ledger entries: %w", err)
	}
	return nil
}

func (t *tx) Archive(ctx context.Context, asked []projection.ArchiveKey) ([]projection.ArchivedEntry, error) {
	ids, versions, events := make([]string, len(asked)), make([]int64, len(asked)), make([]string, len(asked))
	for i, a := range asked {
		ids[i], versions[i], events[i] = a.OrderID, a.Version, a.EventID
	}
	rows, err := t.Query(ctx, sqlArchiveRead, ids, versions, events)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (projection.ArchivedEntry, error) {
		var e projection.ArchivedEntry
		err := scanEntry(row, &e.OrderID, &e.LedgerEntry)
		return e, err
	})
}

// scanEntry reads an entry of order_ledger_archive; a skipped version has neither time nor digest.
func scanEntry(row pgx.CollectableRow, orderID *string, e *projection.LedgerEntry) error {
	var occurredAt *time.Time
	var digest []byte
	err := row.Scan(orderID, &e.Version, &e.EventID, &e.Type, (*string)(&e.State), &occurredAt, &digest, &e.Partition, &e.Offset)
	if occurredAt != nil {
		e.OccurredAt = occurredAt.UTC()
	}
	copy(e.Digest[:], digest)
	return err
}

func (t *tx) Stuck(ctx context.Context, orderIDs []string) (map[string]*projection.Stuck, error) {
	if len(orderIDs) > 100 {
		found, err := collect[string](ctx, t, sqlStuckFind, t.keys(orderIDs))
		if err != nil || len(found) == 0 {
			return nil, err
		}
		orderIDs = found
	}
	rows, err := t.Query(ctx, sqlStuckRead, orderIDs)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all map[string]*projection.Stuck
	for rows.Next() {
		var orderID string
		var ids, versions []int64
		s := &projection.Stuck{}
		if err := rows.Scan(&orderID, &s.FirstParked, &ids, &versions); err != nil {
			return nil, err
		}
		for i := range ids {
			s.Letters = append(s.Letters, projection.OpenLetter{ID: ids[i], Version: versions[i]})
		}
		if all == nil {
			all = make(map[string]*projection.Stuck)
		}
		all[orderID] = s
	}
	return all, rows.Err()
}

func (t *tx) Parked(ctx context.Context, orderID string, after *projection.ParkedEvent, limit int, maxBytes int64) ([]*projection.ParkedEvent, bool, error) {
	args := []any{orderID, int64(0), int32(-1), int64(-1), "", []byte{}, limit, maxBytes}
	if after != nil {
		args = []any{orderID, after.Version, after.Record.Partition, after.Record.Offset, after.EventID, after.Digest[:], limit, maxBytes}
	}
	rows, err := t.Query(ctx, sqlParkedRead, args...)
	if err != nil {
		return nil, false, err
	}
	more := false
	events, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*projection.ParkedEvent, error) {
		p := &projection.ParkedEvent{OrderID: orderID}
		var digest []byte
		into := append([]any{&p.Version, &p.EventID, &digest, &p.Type, &p.OccurredAt}, recordColumns(&p.Record)...)
		err := row.Scan(append(into, &more)...)
		copy(p.Digest[:], digest)
		return p, err
	})
	return events, more, err
}

func (t *tx) Park(ctx context.Context, group string, events []*projection.ParkedEvent) error {
	if len(events) == 0 {
		return nil
	}
	events = slices.Clone(events)
	slices.SortFunc(events, func(a, b *projection.ParkedEvent) int { return strings.Compare(a.OrderID, b.OrderID) })
	var (
		ids, eventIDs, types []string
		versions             []int64
		digests              [][]byte
		occurred             []time.Time
		recs                 records
	)
	for _, p := range events {
		ids, versions, eventIDs = append(ids, p.OrderID), append(versions, p.Version), append(eventIDs, p.EventID)
		digests, types, occurred = append(digests, p.Digest[:]), append(types, p.Type), append(occurred, p.OccurredAt)
		recs.add(&p.Record)
	}
	_, err := t.Exec(ctx, sqlParkedAdd, group, ids, versions, eventIDs, digests, types, occurred,
		recs.topics, recs.topicIDs, recs.partitions, recs.offsets, recs.times, recs.keys, recs.values, recs.headers, recs.timeTypes, recs.millis)
	return err
}

func (t *tx) Unpark(ctx context.Context, events []*projection.ParkedEvent) error {
	var (
		ids, eventIDs []string
		versions      []int64
		digests       [][]byte
	)
	for _, p := range events {
		ids, versions = append(ids, p.OrderID), append(versions, p.Version)
		eventIDs, digests = append(eventIDs, p.EventID), append(digests, p.Digest[:])
	}
	_, err := t.Exec(ctx, sqlParkedRemove, ids, versions, eventIDs, digests)
	return err
}

func (t *tx) AddLetters(ctx context.Context, letters []*projection.DeadLetter) error {
	var (
		groups, ids, events, reasons, details, types []string
		versions                                     []int64
		blocks, superseded, held                     []bool
		recs                                         records
	)
	type place struct {
		log    projection.TopicPartition
		offset int64
	}
	seen := make(map[place]bool, len(letters)) // a statement cannot touch a row twice
	for _, l := range letters {
		at := place{l.Record.TopicPartition, l.Record.Offset}
		if seen[at] {
			continue
		}
		seen[at] = true
		groups = append(groups, l.Group)
		recs.add(&l.Record)
		ids, versions, events = append(ids, l.OrderID), append(versions, l.Version), append(events, l.EventID)
		reasons, details = append(reasons, l.Reason.String()), append(details, storable(l.Detail))
		blocks, superseded, types = append(blocks, l.Blocks), append(superseded, l.Superseded), append(types, l.Type)
		held = append(held, l.WasHeld)
	}
	_, err := t.Exec(ctx, sqlLettersAdd, groups, recs.topics, recs.topicIDs, recs.partitions, recs.offsets, recs.times,
		recs.keys, recs.values, recs.headers, ids, versions, events, reasons, details, blocks, superseded, recs.timeTypes, types, recs.millis, held)
	t.letters = append(t.letters, letters...)
	return err
}

// storable makes a message acceptable to a text column.
func storable(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\ufffd"), "\x00", "\ufffd")
}

func (t *tx) Supersede(ctx context.Context, letterIDs []int64) error {
	slices.Sort(letterIDs)
	_, err := t.Exec(ctx, sqlLettersSupersede, letterIDs)
	return err
}

func (t *tx) Drainable(ctx context.Context, after string, limit int) (orderIDs []string, next string, err error) {
	rows, err := t.Query(ctx, sqlDrainable, after, limit)
	if err != nil {
		return nil, "", err
	}
	defer rows.Close()
	seen := 0
	for rows.Next() {
		var id string
		var due bool
		if err := rows.Scan(&id, &due); err != nil {
			return nil, "", err
		}
		seen++
		next = id
		if due {
			orderIDs = append(orderIDs, id)
		}
	}
	if seen < limit {
		next = ""
	}
	return orderIDs, next, rows.Err()
}

func (t *tx) TrySweepLock(ctx context.Context) (mine bool, err error) {
	err = t.QueryRow(ctx, `SELECT pg_try_advisory_xact_lock($1)`, int64(sweepLock)).Scan(&mine)
	return mine, err
}
