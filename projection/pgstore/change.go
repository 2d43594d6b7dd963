package pgstore

import (
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/orderprojector/orderprojector/projection"
)

// changes are the row writes of one statement: a value of the type order_change[].
type changes struct {
	element uint32 // OID of order_change
	writes  []*projection.RowWrite
	ords    []int32
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
	size := 20
	for _, rw := range c.writes {
		size += 700 + 200*len(rw.Appended)
	}
	w := wire(slices.Grow(buf, size))
	w.arrayHeader(c.element, len(c.writes))
	for i, rw := range c.writes {
		at := w.open()
		w.change(rw, c.ords[i])
		w.close(at)
	}
	return w, nil
}

// change appends the fields of order_change, in its order.
func (w *wire) change(rw *projection.RowWrite, ord int32) {
	r := rw.Row
	w.int32(29)
	w.fieldInt32(ord)
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
