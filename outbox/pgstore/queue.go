package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/orderprojector/orderprojector/outbox/relay"
)

const (
	// relayLock names the advisory lock that makes one session per database publish.
	relayLock = "orderprojector outbox relay"
	channel   = "orderprojector_outbox"

	// releaseAtOnce is how many blocked messages one statement releases.
	releaseAtOnce = 500

	// closeTimeout bounds ending a session.
	closeTimeout = 2 * time.Second
)

// SessionIdleLimit is after what silence the server ends a relay's session, and with it gives
// its lock away: that of a relay that was frozen, or of a machine that is gone. A relay that works asks
// every second. It is longer than the relay's lease and the deadline of a publication
// together, so that nothing is on its way any more when the next one begins.
const SessionIdleLimit = 12 * time.Second

// sessionParameters are what a relay's session needs, by PostgreSQL's names.
func sessionParameters() map[string]string {
	silence := fmt.Sprint(SessionIdleLimit.Milliseconds())
	return map[string]string{
		"idle_session_timeout": silence,
		"tcp_user_timeout":     silence, // while the server waits to be rid of an answer
		"lock_timeout":         "2000",  // less than the relay's lease
		// What is lost by it in a crash is published once more: that is allowed anyway.
		"synchronous_commit": "off",
		// Every statement looks up keys, so index look-ups are always right, whatever the planner
		// believes of a table that is empty now and full in a minute.
		"plan_cache_mode": "force_generic_plan", "jit": "off",
		"enable_seqscan": "off", "enable_bitmapscan": "off", "enable_hashjoin": "off", "enable_mergejoin": "off", "enable_material": "off",
	}
}

// Queue implements relay.Queue on a session of its own: the lock that gives it the
// right to publish ends with the session, however that ends.
type Queue struct {
	conn *pgx.Conn
	// timeout is the deadline of one statement: a little longer than the server's own.
	timeout  time.Duration
	notified atomic.Bool // since the last call of Await
	held     bool        // another session was found to hold messages
}

var _ relay.Queue = (*Queue)(nil)

// OpenQueue returns what a relay takes its queue with. The sessions are nobody
// else's: not those of a pooler that shares them. timeout bounds each question.
func OpenQueue(cfg *pgx.ConnConfig, timeout time.Duration) func(context.Context) (relay.Queue, error) {
	var before uint32 // our session before
	return func(ctx context.Context) (relay.Queue, error) {
		ctx, cancel := context.WithTimeout(ctx, 2*timeout)
		defer cancel()
		q := &Queue{timeout: timeout}
		if err := q.connect(ctx, cfg.Copy()); err != nil {
			return nil, err
		}
		err := q.take(ctx, before)
		if err == nil {
			before = q.conn.PgConn().PID()
		} else {
			q.close(context.WithoutCancel(ctx))
			return nil, err
		}
		return q, nil
	}
}

func (q *Queue) connect(ctx context.Context, cfg *pgx.ConnConfig) (err error) {
	for name, value := range sessionParameters() {
		cfg.RuntimeParams[name] = value
	}
	// A busy relay does not ask for notifications: they must not pile up.
	cfg.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) { q.notified.Store(true) }
	if q.conn, err = pgx.ConnectConfig(ctx, cfg); err != nil {
		return failure("connecting", err)
	}
	return nil
}

// take takes the lock. Where our own session of before still has it, whose connection fell silent, that session is ended: the
// server would find out later.
func (q *Queue) take(ctx context.Context, before uint32) error {
	var mine bool
	err := q.conn.QueryRow(ctx, `SELECT pg_try_advisory_lock(hashtextextended($1, 0))`, relayLock).Scan(&mine)
	switch {
	case err != nil:
		return failure("asking for the right to publish", err)
	case !mine:
		return q.standby(ctx, before)
	}
	if _, err := q.conn.Exec(ctx, `LISTEN `+channel); err != nil {
		return failure("listening", err)
	}
	return nil
}

// standby names the session that has the right, for whoever wonders why nothing is published here.
func (q *Queue) standby(ctx context.Context, before uint32) error {
	var pid uint32
	var application, address string
	err := q.conn.QueryRow(ctx, `
		SELECT a.pid, coalesce(a.application_name, ''), coalesce(host(a.client_addr), 'local')
		FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
		WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
		  AND (l.classid::bigint << 32) | l.objid::bigint = hashtextextended($1, 0)`, relayLock).Scan(&pid, &application, &address)
	if err != nil {
		return relay.ErrStandby // who it is, is not that important
	}
	if pid == before {
		if _, err := q.conn.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE pid = $1::bigint AND usename = current_user AND application_name = current_setting('application_name')`, pid); err != nil {
			return failure("ending the session before", err)
		}
	}
	return fmt.Errorf("%w (database session %d, %s, from %s)", relay.ErrStandby, pid, application, address)
}

// errOtherSession says that a pooler stands between here and the database.
var errOtherSession = errors.New("the database session changed under the relay, as behind a pooler that shares sessions")

// Discover implements relay.Queue. It also makes sure that the session is the one that took the lock.
func (q *Queue) Discover(ctx context.Context, after, upTo int64, limit int) ([]relay.Sighting, error) {
	ctx, cancel := context.WithTimeout(ctx, q.timeout)
	defer cancel()
	batch := &pgx.Batch{}
	batch.Queue(`SELECT pg_backend_pid()`).QueryRow(func(row pgx.Row) error {
		var pid uint32
		if err := row.Scan(&pid); err != nil {
			return err
		}
		if pid != q.conn.PgConn().PID() {
			return errOtherSession
		}
		return nil
	})
	var seen []relay.Sighting
	batch.Queue(sqlDiscover, after, upTo, limit).Query(func(rows pgx.Rows) (err error) {
		seen, err = pgx.AppendRows(make([]relay.Sighting, 0, limit), rows, pgx.RowToStructByPos[relay.Sighting])
		return err
	})
	if err := q.conn.SendBatch(ctx, batch).Close(); err != nil {
		return nil, failure("looking for messages", err)
	}
	return seen, nil
}

// Load implements relay.Queue.
func (q *Queue) Load(ctx context.Context, orders []string, perOrder int, maxBytes int64, take func(*relay.Message) bool) (cut bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, q.timeout)
	defer cancel()
	rows, err := q.conn.Query(ctx, sqlLoad, orders, perOrder, maxBytes)
	if err != nil {
		return false, failure("reading messages", err)
	}
	defer rows.Close()
	var before *relay.Message
	for rows.Next() {
		m := &relay.Message{}
		if err := rows.Scan(&m.Seq, &m.EventID, &m.OrderID, &m.Version, &m.Type, &m.Payload, &m.TraceParent, &m.TraceState, &m.CreatedAt, &m.Tried, &cut); err != nil {
			return false, failure("reading messages", err)
		}
		// The statement can only be carried out order by order. Should that ever change, nothing is published out of order.
		if before != nil && before.OrderID == m.OrderID && before.Version >= m.Version {
			return false, failure("reading messages", fmt.Errorf("order %q: version %d came before version %d", m.OrderID, before.Version, m.Version))
		}
		before = m
		if !take(m) {
			cut = true
			break
		}
	}
	rows.Close()
	if err := rows.Err(); err != nil {
		return false, failure("reading messages", err)
	}
	return cut, nil
}

// Remove implements relay.Queue. Messages that another session holds are left alone, for later. What is
// known of failures of removed messages goes with the next Standing.
func (q *Queue) Remove(ctx context.Context, seqs []int64) (left []int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, q.timeout)
	defer cancel()
	slices.Sort(seqs) // as they lie, and in the order in which others lock
	if !q.held {
		_, err := q.conn.Exec(ctx, sqlRemove, seqs)
		var pgErr *pgconn.PgError
		if err == nil {
			return nil, nil
		} else if !errors.As(err, &pgErr) || pgErr.Code != "55P03" {
			return nil, failure("removing published messages", err)
		}
		q.held = true // somebody locks rows here, and may go on doing so: waiting each time is too slow
	}
	var removed []int64
	rows, err := q.conn.Query(ctx, sqlRemoveFree, seqs)
	if err == nil {
		removed, err = pgx.CollectRows(rows, pgx.RowTo[int64])
	}
	if err != nil {
		return nil, failure("removing published messages", err)
	}
	slices.Sort(removed)
	for _, seq := range seqs {
		if _, gone := slices.BinarySearch(removed, seq); !gone {
			left = append(left, seq)
		}
	}
	left, err = q.existing(ctx, left)
	if err == nil && len(left) == 0 {
		q.held = false
		return nil, nil
	}
	return left, err
}

// existing returns those of the messages that are there: others were deleted by somebody else.
func (q *Queue) existing(ctx context.Context, seqs []int64) ([]int64, error) {
	if len(seqs) == 0 {
		return nil, nil
	}
	rows, err := q.conn.Query(ctx, `SELECT seq FROM outbox WHERE seq = ANY($1::bigint[])`, seqs)
	if err == nil {
		seqs, err = pgx.CollectRows(rows, pgx.RowTo[int64])
	}
	if err != nil {
		return nil, failure("removing published messages", err)
	}
	return seqs, nil
}

// Block implements relay.Queue.
func (q *Queue) Block(ctx context.Context, blocked []relay.Blocked) error {
	ctx, cancel := context.WithTimeout(ctx, q.timeout)
	defer cancel()
	var seqs []int64
	var reasons, details []string
	for _, b := range blocked {
		seqs, reasons, details = append(seqs, b.Message.Seq), append(reasons, string(b.Reason)), append(details, detail(b.Detail))
	}
	if _, err := q.conn.Exec(ctx, sqlBlock, seqs, reasons, details); err != nil {
		return failure("recording blocked messages", err)
	}
	return nil
}

// Release implements relay.Queue.
func (q *Queue) Release(ctx context.Context, limit int64) (released int, err error) {
	ctx, cancel := context.WithTimeout(ctx, q.timeout)
	defer cancel()
	tag, err := q.conn.Exec(ctx, sqlRelease, limit, releaseAtOnce)
	if err != nil {
		return 0, failure("releasing messages that were too large", err)
	}
	return int(tag.RowsAffected()), nil
}

// Standing implements relay.Queue.
func (q *Queue) Standing(ctx context.Context) (s relay.Standing, err error) {
	ctx, cancel := context.WithTimeout(ctx, q.timeout)
	defer cancel()
	if err := q.conn.QueryRow(ctx, sqlStanding).Scan(&s.Orders, &s.Order, &s.Detail); err != nil {
		return s, failure("reading blocked messages", err)
	}
	return s, nil
}

// Await implements relay.Queue. Notifications that came with answers count.
func (q *Queue) Await(ctx context.Context, atMost time.Duration) (notified bool, err error) {
	if q.notified.Swap(false) {
		return true, nil
	}
	waitCtx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	err = q.conn.PgConn().WaitForNotification(waitCtx)
	switch {
	case err == nil:
		return q.notified.Swap(false), nil
	case waitCtx.Err() != nil && !q.conn.IsClosed():
		return false, nil
	}
	return false, failure("waiting for messages", err)
}

// Close implements relay.Queue. The lock ends with the session.
func (q *Queue) Close() { q.close(context.Background()) }

func (q *Queue) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	_ = q.conn.Close(ctx) // what fails here is gone already
}
