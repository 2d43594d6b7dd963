package notifications

import (
	"context"
	"time"
)

// Receiver is who is told. It is safe for concurrent use. Every call has a deadline of its own, of Timeout.
type Receiver interface {
	// Deliver sends a message.
	Deliver(ctx context.Context, m Message) Answer
	// Ask asks whether the receiver has acted on a key.
	Ask(ctx context.Context, key string) Answer
	// Askable reports whether it can be asked.
	Askable() bool
	// Timeout is the deadline of one call.
	Timeout() time.Duration
}

// Verdict is what an answer means.
type Verdict string

// The verdicts.
const (
	Acted    Verdict = "acted"     // the receiver has acted on it
	NotActed Verdict = "not_acted" // to a question: it has not
	NotNow   Verdict = "not_now"   // it has not acted, and may do so later
	Refused  Verdict = "refused"   // it never will
	Unsure   Verdict = "unsure"    // no answer, or one that does not tell
)

// Verdicts lists every verdict.
func Verdicts() []Verdict { return []Verdict{Acted, NotActed, NotNow, Refused, Unsure} }

// Answer is what came of a call.
type Answer struct {
	Verdict Verdict
	Status  int           // HTTP status, 0 when there was none
	Err     error         // why, unless it has acted; without any secret
	After   time.Duration // for how long the receiver wants to be left alone, 0 when it does not say
}
