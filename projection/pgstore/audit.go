package pgstore

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"

	"github.com/jackc/pgx/v5"

	"github.com/orderprojector/orderprojector/projection"
)

// audit writes one operator action to the audit log. It belongs in the
// transaction that carries the action out.
func audit(ctx context.Context, tx pgx.Tx, e projection.AuditEntry) error {
	before, err := jsonOrNull(e.Before)
	if err != nil {
		return fmt.Errorf("auditing %s: %w", e.Action, err)
	}
	after, err := jsonOrNull(e.After)
	if err != nil {
		return fmt.Errorf("auditing %s: %w", e.Action, err)
	}
	_, err = tx.Exec(ctx, `INSERT INTO audit_log (actor, action, target, comment, before, after) VALUES ($1, $2, $3, $4, $5::jsonb, $6::jsonb)`,
		storable(e.Actor), e.Action, storable(e.Target), storable(e.Comment), before, after)
	if err != nil {
		return fmt.Errorf("auditing %s: %w", e.Action, err)
	}
	return nil
}

// jsonOrNull encodes what jsonb can hold, which NUL it cannot.
func jsonOrNull(v any) (*string, error) {
	if v == nil {
		return nil, nil
	}
	encoded, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	text := withoutNUL(string(encoded))
	return &text, nil
}

// withoutNUL replaces an escaped NUL in JSON, unless its backslash is escaped itself.
func withoutNUL(text string) string {
	return escapes.ReplaceAllStringFunc(text, func(escape string) string {
		if escape == `\u0000` {
			return `\ufffd`
		}
		return escape
	})
}

// escapes finds the escape sequences of JSON, one after another.
var escapes = regexp.MustCompile(`\\(u[0-9a-fA-F]{4}|.)`)
