package projection

import (
	"context"
	"time"
)

// Store is where the projection lives. Its transactions are READ COMMITTED:
// a lock waits for the writer before it and then sees what that one wrote.
type Store interface {
	// InTx runs work in one transaction and commits it when work returns nil.
	// The error says nothing of the outcome when the connection was lost
	// during the commit: the watermark tells.
	InTx(ctx context.Context, work func(context.Context, Tx) error) error
	// Classify says what an error of this store means for the work that met it.
	Classify(err error) Failure
}

// Tx is one transaction. Every method handles a whole batch: the number of
// round trips does not depend on the number of rows.
type Tx interface {
	HeldTx
	// Watermark locks the partition's watermark row until the end of the
	// transaction. found is false when there is none.
	Watermark(ctx context.Context, key WatermarkKey) (w Watermark, found bool, err error)
	// InsertWatermark adds a watermark if there is none.
	InsertWatermark(ctx context.Context, key WatermarkKey, nextOffset int64) error
	// OtherTopicIDs lists the topic IDs under which the group has watermarks of the same partition.
	OtherTopicIDs(ctx context.Context, key WatermarkKey) ([]TopicID, error)
	// ForgetSkip ends what SkipFrom and SkipTo of the watermark say.
	ForgetSkip(ctx context.Context, key WatermarkKey) error
	// AdvanceWatermark raises the offset (it never lowers it) and adds the counts.
	AdvanceWatermark(ctx context.Context, key WatermarkKey, nextOffset int64, counts Counts, lost int64) error

	// Rows reads rows without locking them. Orders without a row are absent.
	Rows(ctx context.Context, orderIDs []string) (map[string]*Row, error)
	// LockRows locks the rows of these orders, in key order, and returns them
	// as they are then. Where there is none, one of version 0 is inserted first.
	LockRows(ctx context.Context, orderIDs []string) (map[string]*Row, error)
	// Archive returns the archived entries that match a version or an event ID asked for.
	Archive(ctx context.Context, asked []ArchiveKey) ([]ArchivedEntry, error)
	// Write inserts and updates rows. It returns, for each write, whether its guard held;
	// only those touched a row. An insert's guard does not hold for an order with operators' decisions either.
	Write(ctx context.Context, writes []*RowWrite) (held []bool, err error)

	// Stuck returns what may hold these orders back. Orders with nothing of the kind are absent.
	Stuck(ctx context.Context, orderIDs []string) (map[string]*Stuck, error)
	// Parked returns up to limit parked events of one order, in the order of their
	// turns, behind the one given or, with nil, from the first. It returns fewer when their values have more than
	// maxBytes together, but at least one. more says that others are behind them.
	Parked(ctx context.Context, orderID string, after *ParkedEvent, limit int, maxBytes int64) (events []*ParkedEvent, more bool, err error)
	// Park keeps events; one that is kept already stays as it is.
	Park(ctx context.Context, group string, events []*ParkedEvent) error
	// Unpark removes parked events.
	Unpark(ctx context.Context, events []*ParkedEvent) error
	// AddLetters writes dead letters. A record that has one already keeps it as it is, unless that was redriven: it opens
	// again, with one attempt more.
	AddLetters(ctx context.Context, letters []*DeadLetter) error
	// Supersede closes open letters that an applied event has overtaken.
	Supersede(ctx context.Context, letterIDs []int64) error

	// Decisions returns the operators' decisions about these orders that stand, oldest first. Orders without one are absent.
	Decisions(ctx context.Context, orderIDs []string) (map[string][]OperatorDecision, error)
	// SubstitutesAt returns the substitutes, by coordinates, of records at these offsets.
	SubstitutesAt(ctx context.Context, log TopicPartition, offsets []int64) ([]OperatorDecision, error)

	// Drainable returns up to limit orders, in key order behind `after`, that have a parked event
	// whose predecessor is applied, or an open blocking letter that is
	// overtaken. It looks at a bounded number of candidates; next is where to go on, empty at the end.
	Drainable(ctx context.Context, after string, limit int) (orderIDs []string, next string, err error)
	// NoteRefusals adds refused events of a partition to its group's breaker window,
	// and returns the window with them. It comes behind AdvanceWatermark, which counts them as events.
	NoteRefusals(ctx context.Context, key WatermarkKey, refused []Refusals, policy BreakerPolicy) (BreakerWindow, error)
	// TripBreaker stores that the group's breaker is open, unless it is already.
	TripBreaker(ctx context.Context, group string, trip BreakerTrip) error

	// TrySweepLock takes a lock that one transaction at a time can have.
	TrySweepLock(ctx context.Context) (bool, error)
}

// WatermarkKey names a watermark: the progress of a group in one log.
type WatermarkKey struct {
	Group string
	TopicPartition
}

// Watermark is a partition's durable progress in this database.
type Watermark struct {
	NextOffset int64
	// Generation is raised when the projected tables are exchanged, after
	// which everything that a member remembers of them is void.
	Generation int64
	Counts     Counts
	// SkipFrom and SkipTo are set after an operator skipped offsets, until a newer
	// commit is seen: what Kafka has committed between them is from before, and not where to begin.
	SkipFrom, SkipTo int64
}

// RowWrite is the change of one row by an append of ledger entries, a change of
// status, or both.
type RowWrite struct {
	// Base is the row that was decided on: the guard. Insert says that there
	// was none; otherwise the stored row must have Base's version and revision.
	Insert       bool
	BaseVersion  int64
	BaseRevision int64
	// Row is the row as it will be.
	Row *Row
	// Appended holds the new ledger entries, Archive those that leave the row, oldest
	// first. With many new ones, some of them leave at once.
	Appended []LedgerEntry
	Archive  []LedgerEntry
}

// ArchiveKey asks for an archived entry by version or by event ID.
type ArchiveKey struct {
	OrderID string
	Version int64
	EventID string
}

// ArchivedEntry is an archived ledger entry of an order.
type ArchivedEntry struct {
	OrderID string
	LedgerEntry
}

// ParkedEvent is an event that waits for the versions before it.
type ParkedEvent struct {
	OrderID    string
	Version    int64
	EventID    string
	Digest     Digest
	Type       string
	OccurredAt time.Time
	Record     Record
	stored     bool // it is in the store already
}

// DeadLetter is a record that could not be applied, with the reason.
type DeadLetter struct {
	ID      int64 // 0 until stored
	Group   string
	Record  Record
	OrderID string // what is known of it; empty or 0 where it could not be read
	Version int64
	EventID string
	Type    string
	Reason  Outcome
	Detail  string // opens with the cause
	Blocks  bool
	WasHeld bool // it was a held record
	// Superseded says that it was overtaken in the transaction that wrote it.
	Superseded bool
}

// Stuck is what may hold an order back.
type Stuck struct {
	FirstParked int64 // lowest version of a parked event, or 0 when there is none
	Letters     []OpenLetter
}

// OpenLetter is a dead letter that blocks its order when its version is the next one.
type OpenLetter struct {
	ID      int64
	Version int64
}
