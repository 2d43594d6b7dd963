package projection

// Outcome is the decision on one visible record. The set is closed: every
// record gets exactly one, and the counts per partition in the watermark row
// add up to the visible records below it.
type Outcome uint8

// The outcomes, in the order in which Decide considers them.
const (
	Ignored     Outcome = iota // a tombstone: counted, erases nothing
	Invalid                    // undecodable or not representable exactly: dead letter
	Duplicate                  // repeats a ledger entry: zero rows
	Stale                      // at or below the order's version, which was skipped: zero rows
	Conflict                   // contradicts the ledger: dead letter, order untouched
	Parked                     // ahead of a gap: kept until the gap closes
	Unsupported                // next in line, unknown type or schema version: dead letter, blocks
	Illegal                    // next in line, refused by the state machine: dead letter, blocks
	Applied                    // next in line and legal: state and ledger entry written
	// Held records could not be made durable while others could. A held record is counted as held while it is, and with
	// its own outcome once it is decided: of all counts, this one alone goes down.
	Held
	outcomeCount
)

var outcomeNames = [outcomeCount]string{
	"ignored", "invalid", "duplicate", "stale", "conflict", "parked", "unsupported", "illegal", "applied", "held",
}

// String returns the outcome's name: a metric label, a column of
// projection_watermarks and, for the four that make a letter, its reason.
func (o Outcome) String() string { return outcomeNames[o] }

// MarshalText writes the outcome's name.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// DeadLetters reports whether the outcome writes a dead letter.
func (o Outcome) DeadLetters() bool {
	return o == Invalid || o == Conflict || o == Unsupported || o == Illegal
}

// Outcomes lists every outcome.
func Outcomes() []Outcome {
	all := make([]Outcome, outcomeCount)
	for i := range all {
		all[i] = Outcome(i)
	}
	return all
}

// Counts holds one count per outcome.
type Counts [outcomeCount]int64

// Total is the number of records counted.
func (c Counts) Total() int64 {
	var n int64
	for _, v := range c {
		n += v
	}
	return n
}

// Add adds other to c.
func (c *Counts) Add(other Counts) {
	for i, v := range other {
		c[i] += v
	}
}
