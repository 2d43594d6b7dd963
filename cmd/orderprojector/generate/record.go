package generate

import "github.com/orderprojector/orderprojector/projection"

// HeaderGenerator is on every generated record, so that a topic with foreign
// records is told from one of our own. Its value is the seed.
const HeaderGenerator = "op-generator"

// Record is one record to produce.
type Record struct {
	Key   []byte // nil is a null key
	Value []byte // nil is a null value
	// PartitionKey decides the partition: the Key, or where that is null the
	// order's ID, because an order's events belong in one partition.
	PartitionKey []byte
	Headers      []projection.Header // may be shared by records; not to be changed
	Label        Label
}

// Label says what a record was meant to be. What becomes of it may differ where
// faults meet: an event of an order that an earlier fault blocked parks,
// for one.
type Label struct {
	Fault   Fault
	Detail  string // the variant of the fault
	OrderID string // of the order whose traffic this is
	Version int64  // 0 where the record has none
}

// Fault is what is wrong with a record.
type Fault uint8

// The faults.
const (
	None        Fault = iota // an event, in its turn
	Disorder                 // an event, moved behind later ones of its order
	NullKey                  // an event with a null key
	LateVersion              // an event that comes very late
	Duplicate
	Reencoded
	LateRepeat
	Conflict
	Poison
	Illegal
	Unsupported
	Tombstone
	HugeVersion
	faultCount
)

var faultNames = [faultCount]string{
	"none", "disorder", "null key", "late version", "duplicate", "re-encoded", "late repeat", "conflict", "poison",
	"illegal", "unsupported", "tombstone", "huge version",
}

func (f Fault) String() string { return faultNames[f] }

// Faults lists every fault.
func Faults() []Fault {
	all := make([]Fault, faultCount)
	for i := range all {
		all[i] = Fault(i)
	}
	return all
}
