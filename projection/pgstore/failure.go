package pgstore

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/orderprojector/orderprojector/projection"
)

// Classify implements projection.Store: by SQLSTATE, never by text.
func (s *Store) Classify(err error) projection.Failure {
	var fresh *freshConnectionError
	if errors.Is(err, errNoChangeType) || errors.As(err, &fresh) {
		return projection.Unhealthy
	}
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		return classifyOther(err)
	}
	switch code := pgErr.Code; {
	case code == "23505" && ownKey(pgErr.ConstraintName):
		return projection.LostRace
	case code == "57014": // statement_timeout
		return projection.TooSlow
	case hasClass(code, "22", "23", "54"):
		return projection.BadData
	case hasClass(code, "08", "53"),
		strings.HasPrefix(code, "57P0"), // shutting down, crashed, starting up
		code == "40001", code == "40P01",
		code == readOnly,                   // a failover is under way
		code == "25P03" || code == "25P04", // idle_in_transaction_session_timeout, transaction_timeout
		stale(code):
		return projection.Transient
	case code == "55P03": // lock_timeout
		return projection.Locked
	case code == "42501": // a grant is missing
		return projection.Denied
	}
	return projection.Unhealthy
}

// classifyOther classifies what is not the database's verdict. Only what is known to be a matter of the connection
// passes by itself.
func classifyOther(err error) projection.Failure {
	var commit *commitError
	var connection *connectionError
	var acquire *acquireError
	switch {
	case errors.As(err, &commit):
		return projection.Unanswered
	case errors.As(err, &acquire):
		return projection.Unconnected
	case errors.As(err, &connection), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), pgconn.SafeToRetry(err), pgconn.Timeout(err):
		return projection.Transient
	}
	return projection.Unhealthy
}

// acquireError says that no connection was to be had.
type acquireError struct{ error }

func (e *acquireError) Unwrap() error { return e.error }

// connectionError says that a connection was lost.
type connectionError struct{ error }

func (e *connectionError) Unwrap() error { return e.error }

// commitError says that COMMIT failed. Without an answer of the database it is unknown whether the transaction
// took effect.
type commitError struct{ err error }

func (e *commitError) Error() string { return "COMMIT: " + e.err.Error() }
func (e *commitError) Unwrap() error { return e.err }

// readOnly is the SQLSTATE of a server that does not take writes.
const readOnly = "25006"

// stale reports SQLSTATEs that say that a plan or a prepared statement is void: a migration or a
// pooler took it away. A fresh connection heals that, once.
func stale(code string) bool { return code == "0A000" || code == "26000" || code == "42P05" }

func isStale(err error) bool { return stale(sqlState(err)) }

// sqlState returns the SQLSTATE of the database's error, "" when it is not one.
func sqlState(err error) string {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return pgErr.Code
	}
	return ""
}

// freshConnectionError says that a connection with nothing to forget failed like a stale one.
type freshConnectionError struct{ error }

func (e *freshConnectionError) Unwrap() error { return e.error }

func hasClass(code string, classes ...string) bool {
	for _, class := range classes {
		if strings.HasPrefix(code, class) {
			return true
		}
	}
	return false
}

// ownKey names the keys that two writers of the same order can both want.
func ownKey(constraint string) bool {
	return strings.HasPrefix(constraint, "order_rows") || strings.HasPrefix(constraint, "order_ledger_archive") ||
		strings.HasPrefix(constraint, "parked_events") || strings.HasPrefix(constraint, "dead_letters") ||
		strings.HasPrefix(constraint, "projection_watermarks")
}
