package projection

import (
	"sort"
	"time"
)

// coordinate names a record of the topic that a partition belongs to.
type coordinate struct {
	partition int32
	offset    int64
}

// item is one record of a batch on its way to an outcome.
type item struct {
	rec *Record
	// env is the decoded event; invalid says why there is none.
	env     Envelope
	invalid *DecodeError
	// orderID names the order on whose row the record is decided. It is empty for
	// records that touch no order: tombstones, markers, unreadable values.
	orderID string
	outcome Outcome
	held    bool  // its order has held records: it joins their queue
	blamed  bool  // the database refused it when it was tried alone: no substitute helps
	work    int32 // of which work of its batch it is, in the order in which they turn up
}

// batch is a run of records of one partition, in offset order.
type batch struct {
	items  []item
	begin  int64 // everything below is durable, as far as the member knows
	next   int64 // the position once the batch is durable
	memory *batchMemory
}

// newBatch decodes records.
func newBatch(decoder Decoder, records []Record, memory *batchMemory, begin int64) *batch {
	b := &batch{items: memory.items[:0], begin: begin, next: begin, memory: memory}
	for i := range records {
		b.items = append(b.items, item{})
		b.items[i].take(decoder, &records[i])
		b.next = records[i].Offset + 1
	}
	memory.items = b.items
	return b
}

func newItem(decoder Decoder, rec *Record) (it item) {
	it.take(decoder, rec)
	return it
}

// take makes a new item of a record. It is filled where it is, as it is large.
func (it *item) take(decoder Decoder, rec *Record) {
	it.rec = rec
	if rec.Control {
		return
	}
	if rec.Value == nil {
		it.outcome = Ignored
		return
	}
	if it.env, it.invalid = decode(decoder, rec); it.invalid != nil {
		it.refuse(it.invalid)
	} else {
		it.orderID = it.env.OrderID
	}
}

// refuse makes the record an invalid one.
func (it *item) refuse(why *DecodeError) {
	it.invalid, it.outcome, it.orderID = why, Invalid, ""
	if why.Version > 0 {
		it.orderID = why.OrderID // it may hold its order back
	}
}

// version is the version that the record claims, or 0.
func (it *item) version() int64 {
	if it.invalid != nil {
		return it.invalid.Version
	}
	return it.env.Version
}

// decode turns a panic of a decoder into a verdict on the record: one record
// must not stop the others.
func decode(decoder Decoder, rec *Record) (env Envelope, invalid *DecodeError) {
	defer func() {
		if v := recover(); v != nil {
			env, invalid = Envelope{}, salvageAfterPanic(rec, v)
		}
	}()
	env, err := decoder.Decode(rec)
	if err == nil {
		return env, nil
	}
	if invalid, ok := isOneOf[*DecodeError](err); ok {
		return Envelope{}, invalid
	}
	return Envelope{}, invalidf("%v", err)
}

func salvageAfterPanic(rec *Record, v any) (e *DecodeError) {
	e = invalidf("panic in the decoder: %.200v", v)
	defer func() { _ = recover() }()
	return salvageRecord(rec, e.Detail)
}

// part is the stretch of a batch from the item at from on, of n items: a batch of its own, applied in its turn.
func (b *batch) part(from, n int, begin int64) *batch {
	next := b.next
	if from+n < len(b.items) {
		next = b.items[from+n-1].rec.Offset + 1
	}
	return &batch{items: b.items[from : from+n], begin: begin, next: next, memory: b.memory}
}

// at returns the batch's item at an offset, or nil.
func (b *batch) at(offset int64) *item {
	i := sort.Search(len(b.items), func(i int) bool { return b.items[i].rec.Offset >= offset })
	if i < len(b.items) && b.items[i].rec.Offset == offset {
		return &b.items[i]
	}
	return nil
}

// counts returns the first decisions: those of records that the watermark had not passed.
func (b *batch) counts(watermark int64) Counts {
	var c Counts
	for i := range b.items {
		if it := &b.items[i]; !it.rec.Control && it.rec.Offset >= watermark {
			c[it.outcome]++
		}
	}
	return c
}

// works groups the items by order, sorted by order ID: locality, and one lock order for everybody.
// What it returns is void at the next call for the same memory.
func (b *batch) works() []*work { return b.memory.group(b.items) }

// oldest is the timestamp of the batch's first visible record, or zero.
func (b *batch) oldest() time.Time {
	for i := range b.items {
		if !b.items[i].rec.Control {
			return b.items[i].rec.Timestamp
		}
	}
	return time.Time{}
}
