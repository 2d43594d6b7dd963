package projection

import "context"

// OperatorStore is a Store that operators work on.
type OperatorStore interface {
	Store
	// InOperatorTx is InTx for what operators do.
	InOperatorTx(ctx context.Context, work func(context.Context, OperatorTx) error) error
}

// OperatorTx is one transaction of an operator's action. Rows are locked before
// letters, as the projector does it, and both in key order.
type OperatorTx interface {
	Tx
	// Audit writes actions to the audit log.
	Audit(ctx context.Context, entries ...AuditEntry) error

	// Letters reads letters of the group without locking them, in ID order. What does not exist is absent.
	Letters(ctx context.Context, group string, ids []int64) ([]*Letter, error)
	// LettersOf reads all letters of an order, whatever their status.
	LettersOf(ctx context.Context, group, orderID string) ([]*Letter, error)
	// LockLetters locks letters, in ID order, and says how they stand.
	LockLetters(ctx context.Context, ids []int64) (map[int64]LetterState, error)
	// ChangeLetters writes what became of letters.
	ChangeLetters(ctx context.Context, changes []LetterChange) error
	// SelectLetters returns the next letters of a selection behind a turn, none of them newer than newest.
	SelectLetters(ctx context.Context, group string, s LetterSelection, newest int64, after LetterTurn, limit int) ([]LetterTurn, error)
	// CountLetters counts a selection as it is now; newest is the highest letter ID there is.
	CountLetters(ctx context.Context, group string, s LetterSelection) (letters, newest int64, err error)

	// AddDecision stores a decision, sets its ID, marks the order's row, which must be locked, as decided, and raises
	// its revision, so that whoever remembers the row misses the guard.
	AddDecision(ctx context.Context, d *OperatorDecision) error
	// LockDecision locks a decision, also one that was undone.
	LockDecision(ctx context.Context, id int64) (d OperatorDecision, found bool, err error)
	// UndoDecision marks a decision as undone.
	UndoDecision(ctx context.Context, id int64, by By) error

	// Ledger returns an order's whole ledger, in version order.
	Ledger(ctx context.Context, orderID string) ([]LedgerEntry, error)
	// ReplaceOrder replaces an order: its locked row, which has the version and
	// revision given, its archive and its parked events. w.Row holds the newest ledger entries, w.Archive the others.
	ReplaceOrder(ctx context.Context, group string, w *RowWrite, parked []*ParkedEvent) error
	// HeldOf locks the group's held records of an order, in the order of their logs.
	HeldOf(ctx context.Context, group, orderID string) ([]*HeldRecord, error)
	// HeldAround counts the records before and behind a held record in its queue.
	HeldAround(ctx context.Context, group string, h *HeldRecord) (before, behind int64, err error)
	// MakeHeldDue makes the held records of a selection due now, and returns all of the selection, by ID. It passes over
	// those that somebody else has locked.
	MakeHeldDue(ctx context.Context, group string, s HeldSelection, actor string) ([]HeldRetry, error)
	// LockWatermarks locks the group's watermarks of a topic, by partition, and returns them.
	LockWatermarks(ctx context.Context, group, topic string, id TopicID) (map[int32]int64, error)

	// AddRedriveJob stores a job and sets its ID.
	AddRedriveJob(ctx context.Context, job *RedriveJob) error
	// LockRedriveJob locks a job.
	LockRedriveJob(ctx context.Context, id int64) (job RedriveJob, found bool, err error)
	// SaveRedriveJob stores a locked job's cursor, status and counts.
	SaveRedriveJob(ctx context.Context, job *RedriveJob) error
}

// RedriveJob is a redrive as it is stored: what was selected when it began, and
// how far it has come.
type RedriveJob struct {
	ID        int64
	Group     string
	Selection LetterSelection
	Newest    int64 // the highest letter ID when it began
	Cursor    LetterTurn
	Status    RedriveStatus
	Letters   int64 // tried so far
	Redriven  int64
	Refused   int64
	By        By
}

// RedriveStatus says how a redrive stands.
type RedriveStatus string

// The statuses of a redrive.
const (
	RedriveRunning RedriveStatus = "running" // or interrupted
	RedriveStopped RedriveStatus = "stopped" // by itself, because too many failed again
	RedriveDone    RedriveStatus = "done"
)
