package pgstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/orderprojector/orderprojector/projection"
)

var (
	sqlLettersRead    = statement("letters_read")
	sqlLettersOfOrder = statement("letters_of_order")
	sqlLettersLock    = statement("letters_lock")
	sqlLettersChange  = statement("letters_change")
	sqlLettersSelect  = statement("letters_select")
	sqlLettersCount   = statement("letters_count")
	sqlDecisionsAdd   = statement("decisions_add")
	sqlDecisionsLock  = statement("decisions_lock")
	sqlDecisionsList  = statement("decisions_list")
	sqlRowsDecided    = statement("rows_decided")
	sqlRowsReplace    = statement("rows_replace")
	sqlParkedKeep     = statement("parked_keep")
	sqlLedgerRead     = statement("ledger_read")
	sqlWatermarksLock = statement("watermarks_lock")
)

var _ projection.OperatorStore = (*Store)(nil)

// InOperatorTx implements projection.OperatorStore.
func (s *Store) InOperatorTx(ctx context.Context, work func(context.Context, projection.OperatorTx) error) error {
	return s.InTx(ctx, func(ctx context.Context, t projection.Tx) error { return work(ctx, t.(*tx)) })
}

var _ projection.OperatorTx = (*tx)(nil)

// Audit implements projection.OperatorTx.
func (t *tx) Audit(ctx context.Context, entries ...projection.AuditEntry) error {
	return audit(ctx, t.Tx, entries...)
}

// Letters implements projection.OperatorTx.
func (t *tx) Letters(ctx context.Context, group string, ids []int64) ([]*projection.Letter, error) {
	rows, err := t.Query(ctx, sqlLettersRead, group, ids)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanLetter)
}

// LettersOf implements projection.OperatorTx.
func (t *tx) LettersOf(ctx context.Context, group, orderID string) ([]*projection.Letter, error) {
	rows, err := t.Query(ctx, sqlLettersOfOrder, group, orderID)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanLetter)
}

func scanLetter(row pgx.CollectableRow) (*projection.Letter, error) {
	l := &projection.Letter{}
	var reason string
	into := append([]any{&l.ID, &l.Group}, recordColumns(&l.Record)...)
	err := row.Scan(append(into, &l.OrderID, &l.Version, &l.EventID, &l.Type, &reason, &l.Detail, &l.Blocks, &l.Status, &l.Attempts)...)
	for _, o := range projection.Outcomes() {
		if o.String() == reason {
			l.Reason = o
		}
	}
	return l, err
}

// LockLetters implements projection.OperatorTx.
func (t *tx) LockLetters(ctx context.Context, ids []int64) (map[int64]projection.LetterState, error) {
	rows, err := t.Query(ctx, sqlLettersLock, ids)
	if err != nil {
		return nil, err
	}
	states := make(map[int64]projection.LetterState, len(ids))
	var id int64
	var state projection.LetterState
	_, err = pgx.ForEachRow(rows, []any{&id, &state.Status, &state.Attempts}, func() error {
		states[id] = state
		return nil
	})
	return states, err
}

// ChangeLetters implements projection.OperatorTx.
func (t *tx) ChangeLetters(ctx context.Context, changes []projection.LetterChange) error {
	if len(changes) == 0 {
		return nil
	}
	var (
		ids, versions                                                   []int64
		attempts                                                        []int32
		statuses, by, comments, orders, events, types, reasons, details []string
		refused, blocks                                                 []bool
	)
	for i := range changes {
		c := &changes[i]
		letter, who := c.Refused, c.ClosedBy
		if letter == nil {
			letter = &projection.DeadLetter{}
		}
		if who == nil {
			who = &projection.By{}
		}
		ids, statuses, attempts = append(ids, c.ID), append(statuses, string(c.Status)), append(attempts, int32(c.Attempts))
		by, comments = append(by, storable(who.Actor)), append(comments, storable(who.Comment))
		refused, orders, versions = append(refused, c.Refused != nil), append(orders, letter.OrderID), append(versions, letter.Version)
		events, types, reasons = append(events, letter.EventID), append(types, letter.Type), append(reasons, letter.Reason.String())
		details, blocks = append(details, storable(letter.Detail)), append(blocks, letter.Blocks)
	}
	_, err := t.Exec(ctx, sqlLettersChange, ids, statuses, attempts, by, comments, refused, orders, versions, events, types, reasons, details, blocks)
	return err
}

// selectionArgs are the conditions of a selection, in the order of both queries.
func selectionArgs(s projection.LetterSelection) []any {
	var ids []int64
	if len(s.IDs) > 0 {
		ids = s.IDs
	}
	return []any{ids, s.Reason, s.Order, s.Topic, orNull(s.Since), orNull(s.Until)}
}

func orNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// SelectLetters implements projection.OperatorTx.
func (t *tx) SelectLetters(ctx context.Context, group string, s projection.LetterSelection, newest int64, after projection.LetterTurn, limit int) ([]projection.LetterTurn, error) {
	// The index has them in this order; a sort would go through all that wait for each page.
	for _, setting := range []string{"enable_sort", "enable_bitmapscan"} {
		if _, err := t.Exec(ctx, "SET LOCAL "+setting+" = off"); err != nil {
			return nil, err
		}
	}
	args := append([]any{after.OrderID, after.Version, after.ID, group, newest}, selectionArgs(s)...)
	rows, err := t.Query(ctx, sqlLettersSelect, append(args, limit)...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[projection.LetterTurn])
}

// CountLetters implements projection.OperatorTx.
func (t *tx) CountLetters(ctx context.Context, group string, s projection.LetterSelection) (letters, newest int64, err error) {
	err = t.QueryRow(ctx, sqlLettersCount, append([]any{group}, selectionArgs(s)...)...).Scan(&letters, &newest)
	return letters, newest, err
}

// AddDecision implements projection.OperatorTx.
func (t *tx) AddDecision(ctx context.Context, d *projection.OperatorDecision) error {
	var topic *string
	var topicID *uuid.UUID
	var partition *int32
	var offset *int64
	var digest []byte
	if d.Log.Topic != "" {
		id := uuid.UUID(d.Log.TopicID)
		topic, topicID, partition, offset, digest = &d.Log.Topic, &id, &d.Log.Partition, &d.Offset, d.Digest[:]
	}
	err := t.QueryRow(ctx, sqlDecisionsAdd, d.OrderID, string(d.Kind), d.From, d.To, d.LetterID, topic, topicID, partition, offset,
		digest, d.Substitute, d.ByCoordinates, storable(d.By.Actor), storable(d.By.Comment)).Scan(&d.ID, &d.DecidedAt)
	if err != nil {
		return err
	}
	_, err = t.Exec(ctx, sqlRowsDecided, d.OrderID)
	return err
}

// LockDecision implements projection.OperatorTx.
func (t *tx) LockDecision(ctx context.Context, id int64) (d projection.OperatorDecision, found bool, err error) {
	rows, err := t.Query(ctx, sqlDecisionsLock, id)
	if err != nil {
		return d, false, err
	}
	d, err = pgx.CollectExactlyOneRow(rows, scanDecision)
	if errors.Is(err, pgx.ErrNoRows) {
		return d, false, nil
	}
	return d, err == nil, err
}

// UndoDecision implements projection.OperatorTx.
func (t *tx) UndoDecision(ctx context.Context, id int64, by projection.By) error {
	_, err := t.Exec(ctx, `UPDATE operator_decisions SET undone_at = now(), undone_by = $2, undone_comment = $3 WHERE id = $1`,
		id, storable(by.Actor), storable(by.Comment))
	return err
}

// Ledger implements projection.OperatorTx.
func (t *tx) Ledger(ctx context.Context, orderID string) ([]projection.LedgerEntry, error) {
	rows, err := t.Query(ctx, sqlLedgerRead, orderID)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (projection.LedgerEntry, error) {
		var e projection.LedgerEntry
		var id string
		err := scanEntry(row, &id, &e)
		return e, err
	})
}

// ReplaceOrder implements projection.OperatorTx.
func (t *tx) ReplaceOrder(ctx context.Context, group string, w *projection.RowWrite, parked []*projection.ParkedEvent) error {
	kind := &changeKinds[anyChange]
	element, err := t.typeOID(ctx, kind.name)
	if err != nil {
		return err
	}
	writes := []*projection.RowWrite{w}
	one := changes{kind: kind, element: element, writes: writes, ords: []int32{0}, buffer: bufferOf(t.Conn())}
	held, err := collect[string](ctx, t, sqlRowsReplace, one, w.Row.Decided)
	if err != nil {
		return fmt.Errorf("replacing the row: %w", err)
	}
	if len(held) != 1 {
		return fmt.Errorf("the row of order %q is not the one that was locked", w.Row.OrderID)
	}
	if _, err := t.Exec(ctx, `DELETE FROM order_ledger_archive WHERE order_id = $1`, w.Row.OrderID); err != nil {
		return fmt.Errorf("removing archived ledger entries: %w", err)
	}
	if err := t.archive(ctx, writes, []bool{true}); err != nil {
		return err
	}
	var versions []int64
	var events []string
	var digests [][]byte
	for _, p := range parked {
		versions, events, digests = append(versions, p.Version), append(events, p.EventID), append(digests, p.Digest[:])
	}
	if _, err := t.Exec(ctx, sqlParkedKeep, w.Row.OrderID, versions, events, digests); err != nil {
		return fmt.Errorf("removing parked events: %w", err)
	}
	if err := t.Park(ctx, group, parked); err != nil {
		return fmt.Errorf("parking events: %w", err)
	}
	return nil
}

// LockWatermarks implements projection.OperatorTx.
func (t *tx) LockWatermarks(ctx context.Context, group, topic string, id projection.TopicID) (map[int32]int64, error) {
	rows, err := t.Query(ctx, sqlWatermarksLock, group, topic, uuid.UUID(id))
	if err != nil {
		return nil, err
	}
	marks := make(map[int32]int64)
	var partition int32
	var next int64
	_, err = pgx.ForEachRow(rows, []any{&partition, &next}, func() error {
		marks[partition] = next
		return nil
	})
	return marks, err
}

// AddRedriveJob implements projection.OperatorTx.
func (t *tx) AddRedriveJob(ctx context.Context, job *projection.RedriveJob) error {
	selection, err := json.Marshal(job.Selection)
	if err != nil {
		return err
	}
	return t.QueryRow(ctx, `INSERT INTO redrive_jobs (consumer_group, selection, newest_letter, cursor_order, cursor_version, cursor_letter, status, actor, comment)
		VALUES ($1, $2::jsonb, $3, $4, $5, $6, $7, $8, $9) RETURNING id`,
		job.Group, withoutNUL(string(selection)), job.Newest, job.Cursor.OrderID, job.Cursor.Version, job.Cursor.ID, string(job.Status),
		storable(job.By.Actor), storable(job.By.Comment)).Scan(&job.ID)
}

// LockRedriveJob implements projection.OperatorTx.
func (t *tx) LockRedriveJob(ctx context.Context, id int64) (job projection.RedriveJob, found bool, err error) {
	var selection string
	err = t.QueryRow(ctx, `SELECT id, consumer_group, selection::text, newest_letter, cursor_order, cursor_version, cursor_letter, status,
			letters, redriven, refused, actor, comment
		FROM redrive_jobs WHERE id = $1 FOR UPDATE`, id).Scan(&job.ID, &job.Group, &selection, &job.Newest,
		&job.Cursor.OrderID, &job.Cursor.Version, &job.Cursor.ID, &job.Status, &job.Letters, &job.Redriven, &job.Refused,
		&job.By.Actor, &job.By.Comment)
	if errors.Is(err, pgx.ErrNoRows) {
		return job, false, nil
	}
	if err != nil {
		return job, false, err
	}
	if err := json.Unmarshal([]byte(selection), &job.Selection); err != nil {
		return job, false, fmt.Errorf("the stored selection: %w", err)
	}
	return job, true, nil
}

// SaveRedriveJob implements projection.OperatorTx.
func (t *tx) SaveRedriveJob(ctx context.Context, job *projection.RedriveJob) error {
	_, err := t.Exec(ctx, `UPDATE redrive_jobs SET cursor_order = $2, cursor_version = $3, cursor_letter = $4, status = $5,
			letters = $6, redriven = $7, refused = $8, updated_at = now()
		WHERE id = $1`,
		job.ID, job.Cursor.OrderID, job.Cursor.Version, job.Cursor.ID, string(job.Status), job.Letters, job.Redriven, job.Refused)
	return err
}
