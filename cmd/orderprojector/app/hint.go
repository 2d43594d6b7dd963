package app

import (
	"context"
	"errors"
	"net"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"
)

// Hint returns what an operator can do about a failure of the infrastructure,
// "" where nothing is known. Errors that carry a hint of their own come first.
func Hint(err error) string {
	var own interface{ Hint() string }
	if errors.As(err, &own) && own.Hint() != "" {
		return own.Hint()
	}
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return sqlStateHint(pgErr.Code)
	}
	if errors.Is(err, pgconn.ErrReadOnlyConnection) {
		return sqlStateHint("25006")
	}
	var connectErr *pgconn.ConnectError
	toDatabase := errors.As(err, &connectErr)
	var dnsErr *net.DNSError
	switch {
	case toDatabase && errors.Is(err, syscall.ECONNREFUSED):
		return "nothing listens there: is PostgreSQL running, and is DATABASE_URL right?"
	case toDatabase && errors.Is(err, context.DeadlineExceeded):
		return "PostgreSQL did not answer in time: check host, port and firewall, or raise --database-connect-timeout"
	case toDatabase:
		return "check DATABASE_URL, and that PostgreSQL is reachable from here"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing listens there: is the server running, and is its address right?"
	case errors.Is(err, context.DeadlineExceeded):
		return "there was no answer in time: check host, port, firewall and load"
	case errors.As(err, &dnsErr):
		return "the host name is unknown here"
	}
	return ""
}

func sqlStateHint(code string) string {
	switch code {
	case "08P01":
		return "something between here and PostgreSQL refuses the session: behind PgBouncer add default_query_exec_mode=cache_describe to DATABASE_URL"
	case "26000", "42P05":
		return "prepared statements come and go, as behind a pooler of transactions: add default_query_exec_mode=cache_describe to DATABASE_URL"
	case "28P01":
		return "PostgreSQL refused the password: check DATABASE_URL, PGPASSWORD or the passfile"
	case "28000":
		return "PostgreSQL refused the login: check the user and pg_hba.conf"
	case "3D000":
		return "the database does not exist: create it, or correct its name in DATABASE_URL"
	case "42501":
		return "the database user lacks a grant on the relation that the error names"
	case "42P01", "42703":
		return "a relation or column is missing: run: orderprojector migrate up"
	case "53300":
		return "PostgreSQL has no connection left: lower --writers or raise max_connections"
	case "57P03":
		return "PostgreSQL is starting up or shutting down: try again"
	case "25006":
		return "this server is a standby or was made read-only: connect to the primary, or look at default_transaction_read_only"
	case "53100":
		return "PostgreSQL's disk is full: make room; work goes on by itself"
	case "57014":
		return "the statement was cancelled or took longer than --database-statement-timeout"
	case "55P03":
		return "another session held a lock for longer than --database-lock-timeout"
	}
	return ""
}
