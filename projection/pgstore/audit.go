package pgstore

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"

	"github.com/jackc/pgx/v5"

	"github.com/orderprojector/orderprojector/projection"
)

// audit writes operator actions to the audit log. It belongs in the
// transaction that carries them out.
func audit(ctx context.Context, tx pgx.Tx, entries ...projection.AuditEntry) error {
	if len(entries) == 0 {
		return nil
	}
	var actors, actions, targets, comments []string
	var before, after []*string
	for _, e := range entries {
		was, err := jsonOrNull(e.Before)
		if err != nil {
			return fmt.Errorf("auditing %s: %w", e.Action, err)
		}
		is, err := jsonOrNull(e.After)
		if err != nil {
			return fmt.Errorf("auditing %s: %w", e.Action, err)
		}
		actors, actions, targets = append(actors, storable(e.Actor)), append(actions, e.Action), append(targets, storable(e.Target))
		comments, before, after = append(comments, storable(e.Comment)), append(before, was), append(after, is)
	}
	_, err := tx.Exec(ctx, `INSERT INTO audit_log (actor, action, target, comment, before, after)
		SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::jsonb[], $6::jsonb[])`,
		actors, actions, targets, comments, before, after)
	if err != nil {
		return fmt.Errorf("auditing %s: %w", entries[0].Action, err)
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
