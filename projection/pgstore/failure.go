package pgstore

import (
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/orderprojector/orderprojector/projection"
)

// Classify implements projection.Store: by SQLSTATE, never by text.
func (s *Store) Classify(err error) projection.Failure {
	if errors.Is(err, errNoChangeType) {
		return projection.Unhealthy
	}
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		return projection.Transient // the connection, not the database's verdict
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
		code == "40001", code == "40P01", code == "55P03",
		code == "25006",                                   // read-only: a failover is under way
		code == "0A000", code == "26000", code == "42P05": // a plan or statement that a migration or a pooler took away
		return projection.Transient
	}
	return projection.Unhealthy
}

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
