package pgstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/orderprojector/orderprojector/projection"
)

// Store is what operators do to an outbox, and what they look at. It is safe for
// concurrent use, also beside a relay.
type Store struct{ pool *pgxpool.Pool }

// New returns a store over a pool.
func New(pool *pgxpool.Pool) *Store { return &Store{pool} }

// NotFoundError names a message that is not there.
type NotFoundError struct{ Seq int64 }

func (e *NotFoundError) Error() string { return fmt.Sprintf("no such message: %d", e.Seq) }

// NotBlockedError says that nothing has to be done about a message.
type NotBlockedError struct{ Seq int64 }

func (e *NotBlockedError) Error() string {
	return fmt.Sprintf("message %d is not blocked: it is published in its turn", e.Seq)
}

// Status sums an outbox up.
type Status struct {
	Unpublished       int64   `json:"unpublished"`
	OldestSeconds     float64 `json:"oldest_seconds"` // 0 when there is none
	BlockedMessages   int64   `json:"blocked_messages"`
	BlockedOrders     int64   `json:"blocked_orders"`
	BehindBlocked     int64   `json:"behind_blocked"` // messages that wait for a blocked one of their order
	RetryingMessages  int64   `json:"retrying_messages"`
	DiscardedMessages int64   `json:"discarded_messages"`
	// Relay is the database session of the relay that publishes; nil when there is none.
	Relay *Relay `json:"relay"`
}

// Relay is a relay's session, as PostgreSQL shows it.
type Relay struct {
	PID         int32     `json:"pid"`
	Application string    `json:"application"`
	Address     string    `json:"address"`
	Since       time.Time `json:"since"`
}

// Status reads how the outbox stands.
func (s *Store) Status(ctx context.Context) (Status, error) {
	var st Status
	err := pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, `
			SELECT (SELECT count(*) FROM outbox),
			       coalesce((SELECT greatest(0, extract(epoch FROM clock_timestamp() - created_at)) FROM outbox ORDER BY seq LIMIT 1), 0),
			       (SELECT count(*) FROM outbox_failures WHERE status = 'blocked'),
			       (SELECT count(DISTINCT aggregateid) FROM outbox_failures WHERE status = 'blocked'),
			       (SELECT count(*) FROM outbox o WHERE o.aggregateid IN (SELECT aggregateid FROM outbox_failures WHERE status = 'blocked')
			           AND o.seq NOT IN (SELECT seq FROM outbox_failures WHERE status = 'blocked')),
			       (SELECT count(*) FROM outbox_failures WHERE status = 'retrying'),
			       (SELECT count(*) FROM outbox_discarded)`).
			Scan(&st.Unpublished, &st.OldestSeconds, &st.BlockedMessages, &st.BlockedOrders, &st.BehindBlocked, &st.RetryingMessages, &st.DiscardedMessages)
		if err != nil {
			return err
		}
		var r Relay
		err = tx.QueryRow(ctx, `
			SELECT a.pid, coalesce(a.application_name, ''), coalesce(host(a.client_addr), 'local'), coalesce(a.backend_start, now())
			FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
			WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
			  AND (l.classid::bigint << 32) | l.objid::bigint = hashtextextended($1, 0)`, relayLock).
			Scan(&r.PID, &r.Application, &r.Address, &r.Since)
		switch {
		case err == nil:
			st.Relay = &r
		case errors.Is(err, pgx.ErrNoRows):
			err = nil
		}
		return err
	})
	if err != nil {
		return st, fmt.Errorf("reading the outbox: %w", err)
	}
	return st, nil
}

// Kind selects messages to look at.
type Kind string

// The kinds.
const (
	KindFailed    Kind = "failed"    // blocked, or about to be tried again
	KindAll       Kind = "all"       // everything unpublished
	KindDiscarded Kind = "discarded" // given up by an operator
)

// Filter selects messages. Order, when not empty, is the only one looked at.
type Filter struct {
	Kind  Kind
	Order string
	After int64 // only higher sequence numbers
	Limit int
}

// MessageView is a message as operators see it. What does not apply is null.
type MessageView struct {
	Seq         int64           `json:"seq"`
	Status      string          `json:"status"` // waiting, blocked, retrying or discarded
	OrderID     string          `json:"order_id"`
	Version     int64           `json:"version"`
	Type        string          `json:"type"`
	EventID     string          `json:"event_id"`
	CreatedAt   time.Time       `json:"created_at"`
	Reason      *string         `json:"reason"`
	Detail      *string         `json:"detail"`
	Attempts    *int32          `json:"attempts"`
	FailedAt    *time.Time      `json:"last_failed_at"`
	DiscardedAt *time.Time      `json:"discarded_at"`
	By          *string         `json:"by"` // who discarded it, or had it tried again
	Comment     *string         `json:"comment"`
	Payload     json.RawMessage `json:"payload"`
}

// List returns messages by sequence number, and whether there are more.
func (s *Store) List(ctx context.Context, f Filter) (messages []MessageView, more bool, err error) {
	waiting := `SELECT o.seq, coalesce(f.status, 'waiting'), o.aggregateid, o.version, o.type, o.id, o.created_at, f.reason, f.detail, f.attempts, f.last_failed_at,
		NULL::timestamptz, f.retried_by, f.retried_comment, o.payload
		FROM outbox o ` + map[Kind]string{KindFailed: "", KindAll: "LEFT "}[f.Kind] + `JOIN outbox_failures f ON f.seq = o.seq
		WHERE o.seq > $1 AND ($2 = '' OR o.aggregateid = $2) ORDER BY o.seq LIMIT $3`
	discarded := `SELECT seq, 'discarded', aggregateid, version, type, id, created_at, reason, detail, attempts, NULL::timestamptz,
		discarded_at, discarded_by, discarded_comment, payload
		FROM outbox_discarded WHERE seq > $1 AND ($2 = '' OR aggregateid = $2) ORDER BY seq, discarded_at LIMIT $3`
	sql := waiting
	if f.Kind == KindDiscarded {
		sql = discarded
	}
	rows, err := s.pool.Query(ctx, sql, f.After, f.Order, f.Limit+1)
	if err == nil {
		messages, err = pgx.AppendRows([]MessageView{}, rows, pgx.RowToStructByPos[MessageView])
	}
	if err != nil {
		return nil, false, fmt.Errorf("listing the outbox: %w", err)
	}
	if len(messages) > f.Limit {
		return messages[:f.Limit], true, nil
	}
	return messages, false, nil
}

// Blocked returns the sequence numbers of all blocked messages.
func (s *Store) Blocked(ctx context.Context) ([]int64, error) {
	rows, err := s.pool.Query(ctx, `SELECT f.seq FROM outbox_failures f JOIN outbox o ON o.seq = f.seq WHERE f.status = 'blocked' ORDER BY f.seq`)
	var seqs []int64
	if err == nil {
		seqs, err = pgx.CollectRows(rows, pgx.RowTo[int64])
	}
	if err != nil {
		return nil, fmt.Errorf("listing the outbox: %w", err)
	}
	return seqs, nil
}

// Retry has blocked messages tried again, all of them or none. The error is a *NotFoundError or
// a *NotBlockedError for the first that cannot be.
func (s *Store) Retry(ctx context.Context, seqs []int64, by projection.By) error {
	return s.act(ctx, func(tx pgx.Tx) error {
		for _, seq := range seqs {
			var order string
			var attempts int32
			err := tx.QueryRow(ctx, `UPDATE outbox_failures SET status = 'retrying', retried_at = clock_timestamp(), retried_by = $2, retried_comment = $3
				WHERE seq = $1 AND status = 'blocked' AND EXISTS (SELECT FROM outbox o WHERE o.seq = $1)
				RETURNING aggregateid, attempts`, seq, storable(by.Actor), storable(by.Comment)).Scan(&order, &attempts)
			if errors.Is(err, pgx.ErrNoRows) {
				return s.whyNot(ctx, tx, seq)
			}
			if err != nil {
				return err
			}
			if err := audit(ctx, tx, by, "outbox.retry", seq, map[string]any{"order_id": order, "attempts": attempts}); err != nil {
				return err
			}
		}
		return nil
	})
}

// Discard gives a blocked message up: its order goes on without it. The message is kept, whole. The error
// is a *NotFoundError or a *NotBlockedError when it cannot be.
func (s *Store) Discard(ctx context.Context, seq int64, by projection.By) (MessageView, error) {
	var m MessageView
	err := s.act(ctx, func(tx pgx.Tx) error {
		var reason, detail string
		var attempts int32
		err := tx.QueryRow(ctx, `DELETE FROM outbox_failures WHERE seq = $1 AND status = 'blocked' RETURNING reason, detail, attempts`, seq).
			Scan(&reason, &detail, &attempts)
		if errors.Is(err, pgx.ErrNoRows) {
			return s.whyNot(ctx, tx, seq)
		}
		if err != nil {
			return err
		}
		rows, err := tx.Query(ctx, `
			WITH gone AS (DELETE FROM outbox WHERE seq = $1 RETURNING *)
			INSERT INTO outbox_discarded (seq, id, aggregatetype, aggregateid, type, payload, version, traceparent, tracestate, created_at,
				reason, detail, attempts, discarded_by, discarded_comment)
			SELECT seq, id, aggregatetype, aggregateid, type, payload, version, traceparent, tracestate, created_at, $2, $3, $4, $5, $6 FROM gone
			RETURNING seq, 'discarded', aggregateid, version, type, id, created_at, reason, detail, attempts, NULL::timestamptz,
				discarded_at, discarded_by, discarded_comment, payload`, seq, reason, detail, attempts, storable(by.Actor), storable(by.Comment))
		if err != nil {
			return err
		}
		if m, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[MessageView]); errors.Is(err, pgx.ErrNoRows) {
			return &NotFoundError{seq}
		} else if err != nil {
			return err
		}
		return audit(ctx, tx, by, "outbox.discard", seq, map[string]any{
			"order_id": m.OrderID, "version": m.Version, "event_id": m.EventID, "reason": reason, "attempts": attempts,
		})
	})
	return m, err
}

// Restore puts a discarded message back, to be published. The error is a *NotFoundError when there is none.
func (s *Store) Restore(ctx context.Context, seq int64, by projection.By) error {
	return s.act(ctx, func(tx pgx.Tx) error {
		var order string
		var version int64
		err := tx.QueryRow(ctx, `
			WITH back AS (
				DELETE FROM outbox_discarded d
				WHERE d.seq = $1 AND d.discarded_at = (SELECT max(discarded_at) FROM outbox_discarded WHERE seq = $1) RETURNING *
			)
			INSERT INTO outbox (seq, id, aggregatetype, aggregateid, type, payload, traceparent, tracestate, created_at) OVERRIDING SYSTEM VALUE
			SELECT seq, id, aggregatetype, aggregateid, type, payload, traceparent, tracestate, created_at FROM back
			RETURNING aggregateid, version`, seq).Scan(&order, &version)
		if errors.Is(err, pgx.ErrNoRows) {
			return &NotFoundError{seq}
		}
		if err != nil {
			return err
		}
		return audit(ctx, tx, by, "outbox.restore", seq, map[string]any{"order_id": order, "version": version})
	})
}

// act runs an operator's action and wakes the relay.
func (s *Store) act(ctx context.Context, work func(pgx.Tx) error) error {
	err := pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if err := work(tx); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `SELECT pg_notify($1, '')`, channel)
		return err
	})
	if err != nil {
		return fmt.Errorf("changing the outbox: %w", err)
	}
	return nil
}

func (s *Store) whyNot(ctx context.Context, tx pgx.Tx, seq int64) error {
	var there bool
	if err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM outbox WHERE seq = $1)`, seq).Scan(&there); err != nil {
		return err
	}
	if there {
		return &NotBlockedError{seq}
	}
	return &NotFoundError{seq}
}

// audit writes an action to the audit log, where there is one: a service's own database
// has none, and there the rows themselves say who did it, and why.
func audit(ctx context.Context, tx pgx.Tx, by projection.By, action string, seq int64, before map[string]any) error {
	was, err := json.Marshal(before)
	if err != nil {
		return err
	}
	var there bool
	if err := tx.QueryRow(ctx, `SELECT to_regclass('audit_log') IS NOT NULL`).Scan(&there); err != nil || !there {
		return err
	}
	_, err = tx.Exec(ctx, `INSERT INTO audit_log (actor, action, target, comment, before) VALUES ($1, $2, $3, $4, $5)`,
		storable(by.Actor), action, fmt.Sprintf("outbox message %d", seq), storable(by.Comment), string(was))
	return err
}
