package projection

import (
	"sync"
	"time"
)

const (
	letterSettle   = 5 * time.Second // from the first letter to its note, so that a burst is one note
	letterInterval = time.Minute     // between two notes of the same reason
)

// LetterDigest counts dead letters between two lines of the log. It is safe for concurrent use.
type LetterDigest struct {
	now func() time.Time

	mu       sync.Mutex
	total    int64
	byReason map[Outcome]*letterCount
}

type letterCount struct {
	LetterNote
	first time.Time // letter since the last note
	noted time.Time // the last note
}

// LetterNote says how many records became dead letters for one reason, and names one of them.
type LetterNote struct {
	Reason  Outcome
	Letters int64
	// The example.
	TopicPartition
	Offset  int64
	OrderID string // empty where it could not be read
	Detail  string
}

// NewLetterDigest returns an empty digest.
func NewLetterDigest() *LetterDigest {
	return &LetterDigest{now: time.Now, byReason: make(map[Outcome]*letterCount)}
}

// Add counts letters that are durable.
func (d *LetterDigest) Add(letters []*DeadLetter) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.total += int64(len(letters))
	for _, l := range letters {
		c := d.byReason[l.Reason]
		if c == nil {
			c = &letterCount{}
			d.byReason[l.Reason] = c
		}
		if c.Letters == 0 {
			c.first = d.now()
			c.LetterNote = LetterNote{
				Reason: l.Reason, TopicPartition: l.Record.TopicPartition, Offset: l.Record.Offset, OrderID: l.OrderID, Detail: clip(l.Detail, 200),
			}
		}
		c.Letters++
	}
}

// Due takes the notes whose time has come, or all of them at the end of the program: one per reason and minute.
func (d *LetterDigest) Due(all bool) (notes []LetterNote) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	for _, reason := range Outcomes() {
		c := d.byReason[reason]
		if c == nil || c.Letters == 0 || !all && (now.Sub(c.first) < letterSettle || now.Sub(c.noted) < letterInterval) {
			continue
		}
		notes = append(notes, c.LetterNote)
		c.Letters, c.noted = 0, now
	}
	return notes
}

// Total is how many letters were counted so far.
func (d *LetterDigest) Total() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.total
}
