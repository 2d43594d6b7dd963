package pgstore

import (
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/orderprojector/orderprojector/domain/order"
	"github.com/orderprojector/orderprojector/projection"
)

// readRows decodes what rows_read.sql and rows_lock.sql select, by hand and in binary: a row brings
// eight arrays.
func readRows(rows pgx.Rows, err error, into map[string]*projection.Row) error {
	if err != nil {
		return err
	}
	defer rows.Close()
	texts := make(interned)
	for rows.Next() {
		row, err := readRow(rows.RawValues(), texts)
		if err != nil {
			return fmt.Errorf("decoding a row of order_rows: %w", &projection.RowError{OrderID: string(rows.RawValues()[0]), Err: err})
		}
		into[row.OrderID] = row
	}
	return rows.Err()
}

// interned keeps one copy of texts that come again and again.
type interned map[string]string

func (t interned) get(b []byte) string {
	if s, ok := t[string(b)]; ok {
		return s
	}
	s := string(b)
	t[s] = s
	return s
}

func readRow(v [][]byte, texts interned) (*projection.Row, error) {
	r := &projection.Row{
		OrderID:  string(v[0]),
		Version:  readInt64(v[1]),
		Revision: readInt64(v[2]),
		Order: order.Order{
			CustomerID: string(v[3]), State: order.State(texts.get(v[4])), Currency: texts.get(v[5]),
			TotalMinor: readInt64(v[6]), PaidMinor: readInt64(v[7]), RefundedMinor: readInt64(v[8]),
		},
		CreatedAt: readTime(v[9]), UpdatedAt: readTime(v[10]),
		Status: projection.Status(texts.get(v[12])),
		Topic:  texts.get(v[13]), Partition: int32(readInt64(v[14])), Offset: readInt64(v[15]), Archived: readInt64(v[16]),
		Decided: v[25][0] != 0,
	}
	var arrays [8]array
	for i := range arrays {
		var err error
		if arrays[i], err = readArray(v[17+i]); err != nil {
			return nil, err
		}
		if arrays[i].n != arrays[0].n {
			return nil, fmt.Errorf("ledger arrays of %d and %d elements", arrays[0].n, arrays[i].n)
		}
	}
	r.Ledger = make([]projection.LedgerEntry, arrays[0].n)
	ids := joined(arrays[1]) // one text for all of them
	for i := range r.Ledger {
		e := &r.Ledger[i]
		e.Version = readInt64(arrays[0].next())
		n := len(arrays[1].next())
		e.EventID, ids = ids[:n], ids[n:]
		e.Type = texts.get(arrays[2].next())
		e.State = order.State(texts.get(arrays[3].next()))
		e.OccurredAt = readTime(arrays[4].next())
		copy(e.Digest[:], arrays[5].next())
		e.Partition = int32(readInt64(arrays[6].next()))
		e.Offset = readInt64(arrays[7].next())
	}
	if n := len(r.Ledger); n > 0 && r.Ledger[n-1].EventID == string(v[11]) {
		r.LastEventID = r.Ledger[n-1].EventID
	} else {
		r.LastEventID = string(v[11])
	}
	return r, nil
}

// joined returns the texts of an array, one behind another.
func joined(a array) string {
	var all strings.Builder
	all.Grow(len(a.rest))
	for range a.n {
		all.Write(a.next())
	}
	return all.String()
}
