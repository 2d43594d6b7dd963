package orders

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/orderprojector/orderprojector/domain/order"
	"github.com/orderprojector/orderprojector/outbox"
)

//go:embed schema.sql
var schema string

// Service carries commands out. It is safe for concurrent use.
type Service struct {
	pool *pgxpool.Pool
	now  func() time.Time
}

// New returns a service over a pool. Its tables must be there: see EnsureSchema.
func New(pool *pgxpool.Pool) *Service { return &Service{pool: pool, now: time.Now} }

// EnsureSchema makes the service's tables and the outbox, where they are not there yet.
func (s *Service) EnsureSchema(ctx context.Context) error {
	var there bool
	err := s.pool.QueryRow(ctx, `SELECT to_regclass('orderservice.orders') IS NOT NULL AND to_regclass('orderservice.commands') IS NOT NULL`).Scan(&there)
	if err == nil && !there {
		_, err = s.pool.Exec(ctx, schema, pgx.QueryExecModeSimpleProtocol)
	}
	if err != nil {
		return fmt.Errorf("making the order service's tables: %w", err)
	}
	return outbox.EnsureSchema(ctx, s.pool)
}

// Result says what a command made of its order.
type Result struct {
	OrderID string
	Version int64
	EventID string
	// Repeated says that the command was carried out before, under its idempotency key:
	// nothing was changed now.
	Repeated bool
}

// Do carries a command out, whole or not at all: the order's new row, and the event in the outbox. The
// error is an *IllegalError, a *KeyReusedError, an *outbox.InvalidError or the database's. After an error of the
// database it may be unknown whether it was carried out: a command with an idempotency key can be given again.
func (s *Service) Do(ctx context.Context, c Command) (Result, error) {
	if err := c.validate(); err != nil {
		return Result{}, err
	}
	for {
		var result Result
		err := pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) (err error) {
			result, err = s.carryOut(ctx, tx, c)
			return err
		})
		// Each time this happens another command was carried out, so there is an end to it.
		if errors.Is(err, errOvertaken) && ctx.Err() == nil || transient(err) && ctx.Err() == nil {
			continue
		}
		return result, err
	}
}

// transient reports that the database rolled the transaction back to let another one pass.
func transient(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && (pgErr.Code == "40P01" || pgErr.Code == "40001")
}

func (s *Service) carryOut(ctx context.Context, tx pgx.Tx, c Command) (Result, error) {
	at := s.now().UTC().Truncate(time.Microsecond)
	before, version, err := s.read(ctx, tx, c.OrderID)
	if err != nil {
		return Result{}, err
	}
	content, err := c.content()
	if err != nil {
		return Result{}, err
	}
	if c.IdempotencyKey != "" {
		// Waits for another one with the same key. Its command may have changed the order since it was read: the guard sees to that.
		if done, err := s.claim(ctx, tx, c, content, at); err != nil || done != nil {
			return deref(done), err
		}
	}
	event, err := c.event(before)
	if err != nil {
		return Result{}, err
	}
	after, err := order.Apply(before, event)
	if errors.Is(err, order.ErrIllegal) {
		return Result{}, &IllegalError{Command: c.Name, OrderID: c.OrderID, State: before.State, Event: event.Type(), Err: err}
	}
	if err != nil {
		return Result{}, err
	}
	m, err := outbox.NewMessage(c.OrderID, version+1, at, event)
	if err != nil {
		return Result{}, err
	}
	m.TraceParent, m.TraceState = c.TraceParent, c.TraceState
	if _, err := m.Payload(); err != nil { // before anything is written
		return Result{}, err
	}
	if err := s.write(ctx, tx, c.OrderID, before.State, version, after, at); err != nil {
		return Result{}, err
	}
	// From here on the order's row is locked: its events get into the outbox one after another.
	if err := outbox.Append(ctx, tx, m); err != nil {
		return Result{}, err
	}
	result := Result{OrderID: c.OrderID, Version: version + 1, EventID: m.EventID}
	if c.IdempotencyKey != "" {
		_, err = tx.Exec(ctx, `UPDATE orderservice.commands SET version = $2, event_id = $3 WHERE idempotency_key = $1`, c.IdempotencyKey, result.Version, result.EventID)
	}
	return result, err
}

func deref(r *Result) Result {
	if r == nil {
		return Result{}
	}
	return *r
}

// claim takes the idempotency key. Where it is taken, it returns what was made of the command then.
func (s *Service) claim(ctx context.Context, tx pgx.Tx, c Command, content string, at time.Time) (*Result, error) {
	tag, err := tx.Exec(ctx, `INSERT INTO orderservice.commands (idempotency_key, command, order_id, version, event_id, carried_out_at)
		VALUES ($1, $2, $3, 0, '', $4) ON CONFLICT (idempotency_key) DO NOTHING`, c.IdempotencyKey, content, c.OrderID, at)
	if err != nil {
		return nil, fmt.Errorf("taking the idempotency key: %w", err)
	}
	if tag.RowsAffected() > 0 {
		return nil, nil
	}
	r := &Result{Repeated: true}
	var kept string
	err = tx.QueryRow(ctx, `SELECT command::text, order_id, version, event_id FROM orderservice.commands WHERE idempotency_key = $1`, c.IdempotencyKey).
		Scan(&kept, &r.OrderID, &r.Version, &r.EventID)
	if err != nil {
		return nil, fmt.Errorf("reading what the idempotency key stands for: %w", err)
	}
	if kept != content {
		return nil, &KeyReusedError{Key: c.IdempotencyKey, Given: content, Kept: kept}
	}
	return r, nil
}

// read returns the order and its version, the zero order and version 0 where there is none.
func (s *Service) read(ctx context.Context, tx pgx.Tx, id string) (o order.Order, version int64, err error) {
	err = tx.QueryRow(ctx, `SELECT version, state, customer_id, currency, total_minor, paid_minor, refunded_minor
		FROM orderservice.orders WHERE order_id = $1`, id).
		Scan(&version, &o.State, &o.CustomerID, &o.Currency, &o.TotalMinor, &o.PaidMinor, &o.RefundedMinor)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return o, 0, fmt.Errorf("reading order %s: %w", id, err)
	}
	return o, version, nil
}

// write makes the change under its guard: the order must still be in the state and version that it was
// decided on, or not exist.
func (s *Service) write(ctx context.Context, tx pgx.Tx, id string, state order.State, version int64, o order.Order, at time.Time) error {
	var tag pgconn.CommandTag
	var err error
	if version == 0 {
		tag, err = tx.Exec(ctx, `INSERT INTO orderservice.orders (order_id, version, state, customer_id, currency, total_minor, paid_minor, refunded_minor, created_at, updated_at)
			VALUES ($1, 1, $2, $3, $4, $5, $6, $7, $8, $8) ON CONFLICT (order_id) DO NOTHING`,
			id, string(o.State), o.CustomerID, o.Currency, o.TotalMinor, o.PaidMinor, o.RefundedMinor, at)
	} else {
		tag, err = tx.Exec(ctx, `UPDATE orderservice.orders SET version = version + 1, state = $4, total_minor = $5, paid_minor = $6, refunded_minor = $7, updated_at = $8
			WHERE order_id = $1 AND version = $2 AND state = $3`,
			id, version, string(state), string(o.State), o.TotalMinor, o.PaidMinor, o.RefundedMinor, at)
	}
	if err != nil {
		return fmt.Errorf("changing order %s: %w", id, err)
	}
	if tag.RowsAffected() == 0 {
		return errOvertaken
	}
	return nil
}

// Now is the service's clock.
func (s *Service) Now() time.Time { return s.now() }
