package effects

import (
	"context"

	"github.com/orderprojector/orderprojector/projection"
)

// Store is where a consumer's effects live. Its transactions are READ COMMITTED, as those of projection.Store.
type Store[T Tx] interface {
	// InTx runs work in one transaction and commits it when work returns nil.
	InTx(ctx context.Context, work func(context.Context, T) error) error
	// Classify says what an error of this store means for the work that met it.
	Classify(err error) projection.Failure
}

// Tx is one transaction. Every method handles a whole batch.
type Tx interface {
	projection.HeldTx

	// ClaimGroup makes a consumer group a consumer's, unless it is somebody's already: a consumer's, or the projector's, which has watermarks
	// without a claim. It returns whose the group is, "" for the projector.
	ClaimGroup(ctx context.Context, group, consumer string) (owner string, err error)

	// Consumed returns what a consumer has dealt with of these event IDs.
	Consumed(ctx context.Context, consumer string, eventIDs []string) (map[string]Consumed, error)
	// AddConsumed notes events as consumed. It returns how many were added: fewer when another transaction came first.
	AddConsumed(ctx context.Context, consumer string, events []Consumed) (added int, err error)

	// What follows works dead letters off, as projection.OperatorTx says.

	Audit(ctx context.Context, entries ...projection.AuditEntry) error
	Letters(ctx context.Context, group string, ids []int64) ([]*projection.Letter, error)
	LockLetters(ctx context.Context, ids []int64) (map[int64]projection.LetterState, error)
	ChangeLetters(ctx context.Context, changes []projection.LetterChange) error
	SelectLetters(ctx context.Context, group string, s projection.LetterSelection, newest int64, after projection.LetterTurn, limit int) ([]projection.LetterTurn, error)
	CountLetters(ctx context.Context, group string, s projection.LetterSelection) (letters, newest int64, err error)
}

// Consumed is an event that a consumer has dealt with.
type Consumed struct {
	EventID string
	OrderID string
	Digest  projection.Digest
	Effect  string // applied, duplicate or suppressed
	// The record's coordinates.
	projection.TopicPartition
	Offset int64
}

// What may have become of a consumed event.
const (
	effectApplied    = "applied"
	effectDuplicate  = "duplicate" // another event had the same effect before
	effectSuppressed = "suppressed"
)
