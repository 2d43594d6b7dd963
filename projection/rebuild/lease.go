package rebuild

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// rebuildLock is the advisory lock that one rebuild per database holds. It is held by a
	// transaction, not by a session, because poolers hand sessions around.
	rebuildLock = 0x6f70_7265_6275_6c64 // "oprebuld"
	beat        = time.Second
	beatTimeout = 10 * time.Second
	// A holder that cannot be heard loses the lock after this.
	silence = 60 * time.Second
	// For so long a holder whose connection broke tries to get the lock back.
	regain = 30 * time.Second
)

var errLeaseLost = errors.New("the connection that holds the rebuild's lock broke, and the lock could not be had again")

// lease is the right to rebuild. It is held by a transaction that does nothing else. Its statements go by the simple
// protocol, because the portals of the other one keep a snapshot, which would hold vacuums back.
type lease struct {
	db     *pgxpool.Pool
	schema string
	log    *slog.Logger
	tx     pgx.Tx
	stop   context.CancelFunc
	ended  chan struct{}
}

// acquire takes the lock, or returns a *BusyError.
func acquire(ctx context.Context, db *pgxpool.Pool, schema string, log *slog.Logger) (*lease, error) {
	l := &lease{db: db, schema: schema, log: log}
	tx, err := l.lock(ctx)
	if err != nil {
		return nil, err
	}
	if tx == nil {
		return nil, l.busy(ctx)
	}
	l.tx = tx
	return l, nil
}

// lock returns the transaction that holds the lock, or nil when another one does.
func (l *lease) lock(ctx context.Context) (pgx.Tx, error) {
	ctx, cancel := context.WithTimeout(ctx, beatTimeout)
	defer cancel()
	tx, err := l.db.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return nil, fmt.Errorf("taking the rebuild's lock: %w", err)
	}
	var mine bool
	_, err = tx.Exec(ctx, `SELECT set_config('idle_in_transaction_session_timeout', $1, true)`, pgx.QueryExecModeSimpleProtocol, fmt.Sprint(silence.Milliseconds()))
	if err == nil {
		err = tx.QueryRow(ctx, `SELECT pg_try_advisory_xact_lock($1)`, pgx.QueryExecModeSimpleProtocol, int64(rebuildLock)).Scan(&mine)
	}
	if err != nil || !mine {
		rollback(ctx, tx)
	}
	if err != nil {
		return nil, fmt.Errorf("taking the rebuild's lock: %w", err)
	}
	if !mine {
		return nil, nil
	}
	return tx, nil
}

// rollback ends a transaction whose context may be over.
func rollback(ctx context.Context, tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), beatTimeout)
	defer cancel()
	_ = tx.Rollback(ctx)
}

// busy tells whose rebuild it is that runs.
func (l *lease) busy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, beatTimeout)
	defer cancel()
	var other BusyError
	err := l.db.QueryRow(ctx, `SELECT id, actor, started_at FROM `+quote(l.schema, "rebuilds")+`
		WHERE finished_at IS NULL ORDER BY id DESC LIMIT 1`).Scan(&other.ID, &other.Actor, &other.Started)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("another rebuild is running, and which one is not known: %w", err)
	}
	return &other
}

// watch keeps the lock while rebuild id runs. The context that it returns is cancelled, with the
// reason as its cause, when the lock is lost or somebody asks the rebuild to stop.
func (l *lease) watch(ctx context.Context, id int64) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	watching, stop := context.WithCancel(ctx)
	l.stop, l.ended = stop, make(chan struct{})
	go func() {
		defer close(l.ended)
		tick := time.NewTicker(beat)
		defer tick.Stop()
		for {
			select {
			case <-watching.Done():
				return
			case <-tick.C:
			}
			asked, err := l.look(watching, id)
			if err != nil && watching.Err() == nil {
				l.log.Warn("the connection that holds the rebuild's lock broke", "error", err)
				err = l.again(watching, id)
			}
			switch {
			case watching.Err() != nil:
				return
			case err != nil:
				cancel(fmt.Errorf("%w: %w", errLeaseLost, err))
				return
			case asked != nil:
				cancel(asked)
				return
			}
		}
	}()
	return ctx
}

// look asks whether the rebuild is to stop; asking keeps the lock.
func (l *lease) look(ctx context.Context, id int64) (*AbortedError, error) {
	ctx, cancel := context.WithTimeout(ctx, beatTimeout)
	defer cancel()
	var actor, comment *string
	err := l.tx.QueryRow(ctx, `SELECT abort_actor, abort_comment FROM `+quote(l.schema, "rebuilds")+` WHERE id = $1`, pgx.QueryExecModeSimpleProtocol, id).Scan(&actor, &comment)
	if err != nil || actor == nil {
		return nil, err
	}
	return &AbortedError{Actor: *actor, Comment: *comment}, nil
}

// again takes the lock once more after its connection broke, unless another rebuild has begun meanwhile.
func (l *lease) again(ctx context.Context, id int64) error {
	rollback(ctx, l.tx)
	until := time.Now().Add(regain)
	for {
		tx, err := l.lock(ctx)
		if tx != nil {
			l.tx = tx
			var running bool
			err = tx.QueryRow(ctx, `SELECT finished_at IS NULL FROM `+quote(l.schema, "rebuilds")+` WHERE id = $1`, pgx.QueryExecModeSimpleProtocol, id).Scan(&running)
			if err == nil && !running {
				return errors.New("another rebuild has cleaned up after this one")
			}
			if err == nil {
				return nil
			}
			rollback(ctx, tx)
		}
		if err == nil {
			err = errors.New("another one has it")
		}
		if time.Now().After(until) || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(beat):
		}
	}
}

// release gives the lock back.
func (l *lease) release(ctx context.Context) {
	if l.stop != nil {
		l.stop()
		<-l.ended
	}
	rollback(ctx, l.tx)
}
