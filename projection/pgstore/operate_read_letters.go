package pgstore

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/orderprojector/orderprojector/projection"
)

// LetterView is a row of the relation dead_letters without the record's bytes. Its JSON names are the column names.
type LetterView struct {
	ID             int64      `json:"id"`
	Status         string     `json:"status"`
	Reason         string     `json:"reason"`
	Detail         string     `json:"detail"`
	OrderID        *string    `json:"order_id"`
	Version        *int64     `json:"version"`
	EventID        *string    `json:"event_id"`
	Type           *string    `json:"type"`
	Blocks         bool       `json:"blocks"`   // held its order back when it was refused
	Blocking       bool       `json:"blocking"` // holds it back now
	Attempts       int32      `json:"attempts"`
	FirstFailedAt  time.Time  `json:"first_failed_at"`
	LastFailedAt   time.Time  `json:"last_failed_at"`
	Owner          *string    `json:"owner"`
	DueAt          time.Time  `json:"due_at"`
	Overdue        bool       `json:"overdue"`
	ClosedAt       *time.Time `json:"closed_at"`
	ClosedBy       *string    `json:"closed_by"`
	ClosedComment  *string    `json:"closed_comment"`
	KafkaTopic     string     `json:"kafka_topic"`
	KafkaPartition int32      `json:"kafka_partition"`
	KafkaOffset    int64      `json:"kafka_offset"`
	Bytes          int64      `json:"value_bytes"`
}

func (l *LetterView) utc() {
	l.FirstFailedAt, l.LastFailedAt, l.DueAt = l.FirstFailedAt.UTC(), l.LastFailedAt.UTC(), l.DueAt.UTC()
	l.ClosedAt = utc(l.ClosedAt)
}

// letterColumns are those of LetterView, from dead_letters l, operator_deadlines d and order_rows r.
const letterColumns = `l.id, l.status, l.reason, l.detail, l.order_id, l.version, l.event_id, l.type, l.blocks,
	(l.blocks AND l.status IN ('open', 'exhausted') AND l.version = coalesce(r.version, 0) + 1) AS blocking,
	l.attempts, l.first_failed_at, l.last_failed_at, l.owner, coalesce(l.due_at, l.first_failed_at + d.letter) AS due_at,
	(l.status IN ('open', 'exhausted') AND coalesce(l.due_at, l.first_failed_at + d.letter) < now()) AS overdue,
	l.closed_at, l.closed_by, l.closed_comment, l.kafka_topic, l.kafka_partition, l.kafka_offset,
	coalesce(octet_length(l.value), 0)::bigint AS bytes`

const letterTables = ` FROM dead_letters l CROSS JOIN operator_deadlines d LEFT JOIN order_rows r ON r.order_id = l.order_id `

// LetterFilter selects letters; empty fields select all.
type LetterFilter struct {
	IDs      []int64
	Statuses []string
	Reason   string
	Order    string
	Topic    string
	Type     string
	Owner    string
	Since    time.Time // first failed then or later
	Until    time.Time // first failed before then
	Overdue  bool
	After    int64 // only letters of a higher ID
	Limit    int
}

const letterCondition = ` WHERE l.consumer_group = $1 AND l.id > $2 AND ($3::bigint[] IS NULL OR l.id = ANY ($3)) AND ($4::text[] IS NULL OR l.status = ANY ($4))
	AND ($5 = '' OR l.reason = $5) AND ($6 = '' OR l.order_id = $6) AND ($7 = '' OR l.kafka_topic = $7) AND ($8 = '' OR l.type = $8)
	AND ($9 = '' OR l.owner = $9) AND ($10::timestamptz IS NULL OR l.first_failed_at >= $10) AND ($11::timestamptz IS NULL OR l.first_failed_at < $11)
	AND (NOT $12 OR (l.status IN ('open', 'exhausted') AND coalesce(l.due_at, l.first_failed_at + d.letter) < now())) `

func (f *LetterFilter) args(group string) []any {
	return []any{group, f.After, f.IDs, f.Statuses, f.Reason, f.Order, f.Topic, f.Type, f.Owner, orNull(f.Since), orNull(f.Until), f.Overdue}
}

// Letters lists letters of the group by ID. more says that there are others behind the last one.
func (r *Reader) Letters(ctx context.Context, group string, f LetterFilter) (letters []LetterView, more bool, err error) {
	err = r.snapshot(ctx, func(tx pgx.Tx) error {
		letters, err = query[LetterView](ctx, tx, "dead_letters",
			`SELECT `+letterColumns+letterTables+letterCondition+` ORDER BY l.id LIMIT $13`, append(f.args(group), f.Limit+1)...)
		return err
	})
	if more = len(letters) > f.Limit; more {
		letters = letters[:f.Limit]
	}
	for i := range letters {
		letters[i].utc()
	}
	return letters, more, err
}

// LetterGroup counts letters that died alike.
type LetterGroup struct {
	Reason   string    `json:"reason"`
	Cause    string    `json:"cause"` // the detail, with what differs from letter to letter left out
	Type     string    `json:"type"`  // of the events, where it could be read
	Letters  int64     `json:"letters"`
	Orders   int64     `json:"orders"`
	Blocking int64     `json:"blocking"` // hold their order back now
	Oldest   time.Time `json:"oldest"`
	Newest   time.Time `json:"newest"`
	Example  int64     `json:"example_id"`
}

// LetterGroups counts the letters of a filter by reason, cause and type, the largest groups first.
func (r *Reader) LetterGroups(ctx context.Context, group string, f LetterFilter) (groups []LetterGroup, err error) {
	err = r.snapshot(ctx, func(tx pgx.Tx) error {
		groups, err = query[LetterGroup](ctx, tx, "dead_letters", `
			SELECT reason, cause, type, count(*) AS letters, count(DISTINCT order_id) AS orders, count(*) FILTER (WHERE blocking) AS blocking,
			       min(first_failed_at) AS oldest, max(first_failed_at) AS newest, min(id) AS example
			FROM (SELECT l.id, l.reason, l.order_id, l.first_failed_at, coalesce(l.type, '') AS type,
			             (l.blocks AND l.status IN ('open', 'exhausted') AND l.version = coalesce(r.version, 0) + 1) AS blocking,
			             left(regexp_replace(regexp_replace(l.detail, '"([^"\\]|\\.)*"', '"..."', 'g'), '[0-9]+', 'N', 'g'), 120) AS cause
			      `+letterTables+letterCondition+`) AS died
			GROUP BY reason, cause, type ORDER BY count(*) DESC, reason, cause, type LIMIT $13`, append(f.args(group), f.Limit)...)
		return err
	})
	for i := range groups {
		groups[i].Oldest, groups[i].Newest = groups[i].Oldest.UTC(), groups[i].Newest.UTC()
	}
	return groups, err
}

// LetterID returns the ID of the letter of a record, ErrNotFound when it has none.
func (r *Reader) LetterID(ctx context.Context, group string, tp projection.TopicPartition, offset int64) (id int64, err error) {
	err = r.snapshot(ctx, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, `SELECT id FROM dead_letters WHERE consumer_group = $1 AND kafka_topic = $2 AND topic_id = $3 AND kafka_partition = $4 AND kafka_offset = $5`,
			group, tp.Topic, uuid.UUID(tp.TopicID), tp.Partition, offset).Scan(&id)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, ErrNotFound
	}
	return id, err
}

// LetterRecord is a letter with its record, byte for byte.
type LetterRecord struct {
	LetterView
	Record projection.Record
}

// LetterRecord reads one letter with its record. The error is ErrNotFound when the group has none of that ID.
func (r *Reader) LetterRecord(ctx context.Context, group string, id int64) (LetterRecord, error) {
	var letter LetterRecord
	err := r.snapshot(ctx, func(tx pgx.Tx) error {
		views, err := query[LetterView](ctx, tx, "dead_letters",
			`SELECT `+letterColumns+letterTables+` WHERE l.consumer_group = $1 AND l.id = $2`, group, id)
		if err != nil {
			return err
		}
		if len(views) == 0 {
			return ErrNotFound
		}
		letter.LetterView = views[0]
		letter.utc()
		stored, err := readLetterRecords(ctx, tx, group, []int64{id})
		if err == nil && len(stored) == 1 {
			letter.Record = stored[0].Record
		}
		return err
	})
	return letter, err
}

func readLetterRecords(ctx context.Context, tx pgx.Tx, group string, ids []int64) ([]*projection.Letter, error) {
	rows, err := tx.Query(ctx, sqlLettersRead, group, ids)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanLetter)
}

// exportStep is how many letters an export holds in memory at once.
const exportStep = 50

// ExportLetters calls each for every letter of a filter, by ID, with its record. It reads page by page; letters
// that change meanwhile come as they are when their page is read.
func (r *Reader) ExportLetters(ctx context.Context, group string, f LetterFilter, each func(LetterRecord) error) (n int64, err error) {
	limit := int64(f.Limit)
	for {
		f.Limit = exportStep
		if limit > 0 {
			f.Limit = int(min(int64(exportStep), limit-n))
		}
		var letters []LetterView
		var stored []*projection.Letter
		err := r.snapshot(ctx, func(tx pgx.Tx) (err error) {
			letters, err = query[LetterView](ctx, tx, "dead_letters",
				`SELECT `+letterColumns+letterTables+letterCondition+` ORDER BY l.id LIMIT $13`, append(f.args(group), f.Limit)...)
			if err != nil || len(letters) == 0 {
				return err
			}
			ids := make([]int64, len(letters))
			for i := range letters {
				ids[i] = letters[i].ID
			}
			stored, err = readLetterRecords(ctx, tx, group, ids)
			return err
		})
		if err != nil {
			return n, err
		}
		for i := range letters {
			letters[i].utc()
			if err := each(LetterRecord{letters[i], stored[i].Record}); err != nil {
				return n, err
			}
			n++
		}
		if len(letters) < f.Limit || limit > 0 && n >= limit {
			return n, nil
		}
		f.After = letters[len(letters)-1].ID
	}
}

// AuditEntry is a row of the relation audit_log.
type AuditEntry struct {
	ID      int64           `json:"id"`
	At      time.Time       `json:"at"`
	Actor   string          `json:"actor"`
	Action  string          `json:"action"`
	Target  string          `json:"target"`
	Comment string          `json:"comment"`
	Before  json.RawMessage `json:"before"`
	After   json.RawMessage `json:"after"`
}

// AuditFilter selects entries; empty fields select all.
type AuditFilter struct {
	Actor, Action, Target string
	Since, Until          time.Time
	Below                 int64 // only entries of a lower ID; 0 for all
	Limit                 int
}

// Audit lists the audit log, the newest first. more says that there are older ones behind the last.
func (r *Reader) Audit(ctx context.Context, f AuditFilter) (entries []AuditEntry, more bool, err error) {
	err = r.snapshot(ctx, func(tx pgx.Tx) error {
		entries, err = query[AuditEntry](ctx, tx, "audit_log", `SELECT id, at, actor, action, target, comment, before, after FROM audit_log
			WHERE ($1 = '' OR actor = $1) AND ($2 = '' OR action = $2 OR starts_with(action, $2 || '.')) AND ($3 = '' OR target = $3)
			  AND ($4::timestamptz IS NULL OR at >= $4) AND ($5::timestamptz IS NULL OR at < $5) AND ($6 = 0 OR id < $6)
			ORDER BY id DESC LIMIT $7`, f.Actor, f.Action, f.Target, orNull(f.Since), orNull(f.Until), f.Below, f.Limit+1)
		return err
	})
	if more = len(entries) > f.Limit; more {
		entries = entries[:f.Limit]
	}
	for i := range entries {
		entries[i].At = entries[i].At.UTC()
	}
	return entries, more, err
}
