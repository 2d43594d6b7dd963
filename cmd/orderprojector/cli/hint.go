package cli

import (
	"context"
	"errors"
	"net"
	"slices"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"
)

// hintsFor collects what to tell the operator: the hints that the errors in
// the tree carry themselves, else one for a failure that is recognised.
func hintsFor(err error) []string {
	var hints []string
	collectHints(err, &hints)
	if len(hints) == 0 {
		if hint := knownFailure(err); hint != "" {
			hints = append(hints, hint)
		}
	}
	return hints
}

func collectHints(err error, hints *[]string) {
	if h, ok := err.(interface{ Hint() string }); ok {
		if hint := h.Hint(); hint != "" && !slices.Contains(*hints, hint) {
			*hints = append(*hints, hint)
		}
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		if inner := e.Unwrap(); inner != nil {
			collectHints(inner, hints)
		}
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			collectHints(inner, hints)
		}
	}
}

// sqlStateHints answers what PostgreSQL says with a code.
var sqlStateHints = map[string]string{
	"28P01": "PostgreSQL refused the password: check DATABASE_URL, PGPASSWORD or the passfile",
	"28000": "PostgreSQL refused the login: check the user and pg_hba.conf",
	"3D000": "the database does not exist: create it, or correct its name in DATABASE_URL",
	"42501": "the database user lacks a grant on the relation named above",
	"42P01": "a relation is missing: run: orderprojector migrate up",
	"42703": "a column is missing: run: orderprojector migrate up",
	"53300": "PostgreSQL has no connection left: lower --writers or raise max_connections",
	"57P03": "PostgreSQL is starting up or shutting down: try again",
	"25006": "this server is a read-only standby: connect to the primary",
	"57014": "the statement was cancelled or exceeded --database-statement-timeout",
	"55P03": "another session holds a lock for longer than --database-lock-timeout",
}

func knownFailure(err error) string {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return sqlStateHints[pgErr.Code]
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
	case errors.As(err, &dnsErr):
		return "the host name is unknown here"
	}
	return ""
}
