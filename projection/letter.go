package projection

import "time"

// LetterStatus says what became of a dead letter.
type LetterStatus string

// The statuses of a dead letter. Open and exhausted ones wait for somebody.
const (
	LetterOpen       LetterStatus = "open"
	LetterRedriven   LetterStatus = "redriven"   // decided again: applied, parked, or a repeat
	LetterSuperseded LetterStatus = "superseded" // another event of its version was applied, or the version was skipped
	LetterDiscarded  LetterStatus = "discarded"
	LetterExhausted  LetterStatus = "exhausted" // refused so often that it is tried again only by its ID
)

// Waits reports whether the letter still needs somebody.
func (s LetterStatus) Waits() bool { return s == LetterOpen || s == LetterExhausted }

// Letter is a dead letter as it is stored.
type Letter struct {
	DeadLetter
	Status   LetterStatus
	Attempts int // how often it was decided, from 1
}

// LetterState is the part of a letter that changes while it waits.
type LetterState struct {
	Status   LetterStatus
	Attempts int
}

// LetterChange is what a decision or an operator makes of a letter.
type LetterChange struct {
	ID       int64
	Status   LetterStatus
	Attempts int
	// Refused, when it is not nil, is why the record was refused again: it replaces what the letter says of the record.
	Refused *DeadLetter
	// ClosedBy is who closed it, when it was a person.
	ClosedBy *By
}

// LetterSelection selects letters that wait. Empty fields select all, but an empty
// selection has to say so by All.
type LetterSelection struct {
	IDs    []int64   `json:"ids,omitempty"` // these only, exhausted ones too
	Reason string    `json:"reason,omitempty"`
	Order  string    `json:"order,omitempty"`
	Topic  string    `json:"topic,omitempty"`
	Since  time.Time `json:"since,omitzero"` // first failed then or later
	Until  time.Time `json:"until,omitzero"` // first failed before then
	All    bool      `json:"all,omitempty"`
}

// LetterTurn is a letter's place in the order in which letters are worked off: an order's
// letters one after another, by version.
type LetterTurn struct {
	OrderID string // empty when unknown
	Version int64  // 0 when unknown
	ID      int64
}

// BeforeAllTurns is the place before the first letter.
func BeforeAllTurns() LetterTurn { return LetterTurn{Version: -1} }
