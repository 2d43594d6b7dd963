package pgstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/orderprojector/orderprojector/projection/lettercopy"
)

var (
	sqlCopiesDue      = statement("copies_due")
	sqlCopiesTake     = statement("copies_take")
	sqlCopiesSettle   = statement("copies_settle")
	sqlCopiesPostpone = statement("copies_postpone")
)

// copiesLock names the advisory lock that makes one session per group publish copies.
const copiesLock = "orderprojector copies of dead letters of "

// copyTurn is how long a publisher on a shared session has the letters that it took, longer than a round takes.
const copyTurn = time.Minute

// copyQueue implements lettercopy.Queue on a session of its own: the lock that gives it
// the right to publish ends with the session, however that ends. A pooler that shares sessions between
// clients would share the lock, too: there every publisher works, and takes letters for a while.
type copyQueue struct {
	conn  *pgx.Conn
	group string
}

// OpenCopyQueue returns what a lettercopy.Publisher opens its sessions with.
func OpenCopyQueue(group string, connect func(context.Context) (*pgx.Conn, error)) func(context.Context) (lettercopy.Queue, error) {
	return func(ctx context.Context) (lettercopy.Queue, error) {
		conn, err := connect(ctx)
		if err != nil {
			return nil, fmt.Errorf("connecting: %w", err)
		}
		q := &copyQueue{conn: conn, group: group}
		if SharesSessions(conn.Config()) {
			return q, nil
		}
		var mine bool
		if err := conn.QueryRow(ctx, `SELECT pg_try_advisory_lock(hashtextextended($1, 0))`, copiesLock+group).Scan(&mine); err != nil {
			q.close(context.WithoutCancel(ctx))
			return nil, fmt.Errorf("asking for the right to publish copies: %w", err)
		}
		if !mine {
			err := q.standby(ctx)
			q.close(context.WithoutCancel(ctx))
			return nil, err
		}
		return q, nil
	}
}

// standby names the session that has the right, for whoever wonders why nothing is copied.
func (q *copyQueue) standby(ctx context.Context) error {
	var pid int32
	var application, address string
	err := q.conn.QueryRow(ctx, `
		SELECT a.pid, coalesce(a.application_name, ''), coalesce(host(a.client_addr), 'local')
		FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
		WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
		  AND (l.classid::bigint << 32) | l.objid::bigint = hashtextextended($1, 0)`, copiesLock+q.group).Scan(&pid, &application, &address)
	if err != nil {
		return lettercopy.ErrStandby // who it is, is not that important
	}
	return fmt.Errorf("%w (database session %d, %s, from %s)", lettercopy.ErrStandby, pid, application, address)
}

// Due implements lettercopy.Queue.
func (q *copyQueue) Due(ctx context.Context, maxLetters int, maxBytes int64) ([]*lettercopy.Letter, error) {
	sql, args := sqlCopiesDue, []any{q.group, maxLetters, maxBytes}
	if SharesSessions(q.conn.Config()) {
		sql, args = sqlCopiesTake, append(args, copyTurn)
	}
	rows, err := q.conn.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (*lettercopy.Letter, error) {
		l := &lettercopy.Letter{}
		into := append([]any{&l.ID, &l.Group, &l.Attempts}, recordColumns(&l.Record)...)
		err := row.Scan(append(into,
			&l.OrderID, &l.EventID, &l.Version, &l.Reason, &l.Detail, &l.FirstFailedAt, &l.LastFailedAt, &l.CopyFailures)...)
		return l, err
	})
}

// Settle implements lettercopy.Queue.
func (q *copyQueue) Settle(ctx context.Context, receipts []lettercopy.Receipt) error {
	var (
		ids, offsets           []int64
		attempts, partitions   []int32
		forms, reasons, topics []string
	)
	for _, r := range receipts {
		topic := r.Topic
		if r.Form == lettercopy.NoCopy {
			topic = ""
		}
		ids, attempts = append(ids, r.Letter.ID), append(attempts, int32(r.Letter.Attempts))
		forms, reasons = append(forms, string(r.Form)), append(reasons, storable(r.Reason))
		topics, partitions, offsets = append(topics, topic), append(partitions, r.Partition), append(offsets, r.Offset)
	}
	_, err := q.conn.Exec(ctx, sqlCopiesSettle, ids, attempts, forms, reasons, topics, partitions, offsets)
	return err
}

// Postpone implements lettercopy.Queue.
func (q *copyQueue) Postpone(ctx context.Context, receipts []lettercopy.Receipt, pauses []time.Duration) error {
	var ids []int64
	var attempts []int32
	var failures []string
	for _, r := range receipts {
		ids, attempts = append(ids, r.Letter.ID), append(attempts, int32(r.Letter.Attempts))
		failures = append(failures, storable(r.Err.Error()))
	}
	_, err := q.conn.Exec(ctx, sqlCopiesPostpone, ids, attempts, failures, pauses)
	return err
}

// Close implements lettercopy.Queue. The lock ends with the session.
func (q *copyQueue) Close() { q.close(context.Background()) }

func (q *copyQueue) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_ = q.conn.Close(ctx) // what fails here is gone already
}
