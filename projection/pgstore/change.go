package pgstore

import (
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/orderprojector/orderprojector/projection"
)

// A changeKind is a composite type that carries what a statement does to a row.
type changeKind struct {
	name   string
	encode func(*wire, *projection.RowWrite)
}

// changeKinds are the types of the writer's statements.
var changeKinds = [...]changeKind{anyChange: {"order_row_change", (*wire).change}, oneEvent: {"order_row_append", (*wire).append}}

// Indexes into changeKinds.
const (
	anyChange = iota
	oneEvent  // the most common change of all, in a third of the bytes
)

// isOneEvent reports whether a change is what rows_append.sql does: one event more for an order whose row says
// nothing else that is new. Customer, currency and the first event's time come with a first event; the version
// that a row waits for changes with every event.
func isOneEvent(rw *projection.RowWrite) bool {
	r := rw.Row
	return len(rw.Appended) == 1 && len(rw.Archive) == 0 && !rw.Appended[0].Skipped() &&
		rw.BaseVersion > 0 && rw.BaseRevision == r.Revision && r.Status == projection.StatusOK && !r.CreatedAt.Equal(r.UpdatedAt)
}

// changes are row writes of one statement: an array of a composite type.
type changes struct {
	kind    *changeKind
	element uint32 // OID of the composite type
	writes  []*projection.RowWrite
	ords    []int32       // which of the writes
	buffer  *encodeBuffer // memory for the encoded value
}

// find returns which of the changes is of this order, or -1. It looks from a place on: rows
// come back in the order in which they went, nearly always.
func (c *changes) find(orderID []byte, from int) int {
	for n := range c.ords {
		at := (from + n) % len(c.ords)
		if c.writes[c.ords[at]].Row.OrderID == string(orderID) {
			return at
		}
	}
	return -1
}

// changesCodec encodes changes straight into the message to the server.
type changesCodec struct{ pgtype.ByteaCodec }

func (changesCodec) PlanEncode(_ *pgtype.Map, _ uint32, format int16, value any) pgtype.EncodePlan {
	if _, ok := value.(changes); ok && format == pgtype.BinaryFormatCode {
		return changesPlan{}
	}
	return nil
}

type changesPlan struct{}

func (changesPlan) Encode(value any, buf []byte) ([]byte, error) {
	c := value.(changes)
	return c.buffer.encode(buf, func(w *wire) {
		w.arrayHeader(c.element, len(c.ords))
		for _, ord := range c.ords {
			at := w.open()
			c.kind.encode(w, c.writes[ord])
			w.close(at)
		}
	}), nil
}

// change appends the fields of order_row_change, in its order.
func (w *wire) change(rw *projection.RowWrite) {
	r := rw.Row
	w.int32(28)
	w.fieldText(r.OrderID)
	w.fieldInt64(rw.BaseVersion)
	w.fieldInt64(rw.BaseRevision)
	w.fieldInt64(r.Version)
	w.fieldInt64(r.Revision)
	w.fieldText(r.CustomerID)
	w.fieldText(string(r.State))
	w.fieldText(r.Currency)
	w.fieldInt64(r.TotalMinor)
	w.fieldInt64(r.PaidMinor)
	w.fieldInt64(r.RefundedMinor)
	w.fieldTime(r.CreatedAt)
	w.fieldTime(r.UpdatedAt)
	w.fieldText(r.LastEventID)
	w.fieldText(string(r.Status))
	if waiting := r.WaitingFor(); waiting > 0 {
		w.fieldInt64(waiting)
	} else {
		w.fieldNull(pgtype.Int8OID)
	}
	w.fieldText(r.Topic)
	w.fieldInt32(r.Partition)
	w.fieldInt64(r.Offset)
	w.fieldInt32(int32(len(rw.Archive)))
	w.entries(rw.Appended)
}

// append appends the fields of order_row_append, in its order.
func (w *wire) append(rw *projection.RowWrite) {
	r, e := rw.Row, &rw.Appended[0]
	w.int32(14)
	w.fieldText(r.OrderID)
	w.fieldInt64(rw.BaseVersion)
	w.fieldInt64(rw.BaseRevision)
	w.fieldText(string(r.State))
	w.fieldInt64(r.TotalMinor)
	w.fieldInt64(r.PaidMinor)
	w.fieldInt64(r.RefundedMinor)
	w.fieldText(e.EventID)
	w.fieldText(e.Type)
	w.fieldTime(e.OccurredAt)
	w.fieldBytes(e.Digest[:])
	w.fieldText(r.Topic)
	w.fieldInt32(e.Partition)
	w.fieldInt64(e.Offset)
}

// entries appends ledger entries as parallel arrays.
func (w *wire) entries(entries []projection.LedgerEntry) {
	n := len(entries)
	text := func(s string) {
		w.int32(int32(len(s)))
		*w = append(*w, s...)
	}
	number := func(v int64) {
		w.int32(8)
		w.int64(v)
	}
	w.fieldArray(pgtype.Int8ArrayOID, pgtype.Int8OID, n, func(i int) { number(entries[i].Version) })
	w.fieldArray(pgtype.TextArrayOID, pgtype.TextOID, n, func(i int) { text(entries[i].EventID) })
	w.fieldArray(pgtype.TextArrayOID, pgtype.TextOID, n, func(i int) { text(entries[i].Type) })
	w.fieldArray(pgtype.TextArrayOID, pgtype.TextOID, n, func(i int) { text(string(entries[i].State)) })
	w.fieldArray(pgtype.TimestamptzArrayOID, pgtype.TimestamptzOID, n, func(i int) {
		if at := entries[i].OccurredAt; at.IsZero() { // a skipped version
			w.int32(-1)
		} else {
			number(micros(at))
		}
	})
	w.fieldArray(pgtype.ByteaArrayOID, pgtype.ByteaOID, n, func(i int) {
		if entries[i].Skipped() {
			w.int32(0)
			return
		}
		w.int32(projection.DigestSize)
		*w = append(*w, entries[i].Digest[:]...)
	})
	w.fieldArray(pgtype.Int4ArrayOID, pgtype.Int4OID, n, func(i int) {
		w.int32(4)
		w.int32(entries[i].Partition)
	})
	w.fieldArray(pgtype.Int8ArrayOID, pgtype.Int8OID, n, func(i int) { number(entries[i].Offset) })
}

func micros(t time.Time) int64 { return t.UnixMicro() - pgEpoch }
