package pgstore

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// PostgreSQL's binary formats, written and read by hand: a batch carries tens of
// thousands of array elements, which is most of what a generic codec would
// spend its time on.

// pgEpoch is PostgreSQL's zero of time, in microseconds of Unix time.
const pgEpoch = 946684800_000_000

// wire appends values in binary format.
type wire []byte

func (w *wire) int32(v int32) { *w = binary.BigEndian.AppendUint32(*w, uint32(v)) }
func (w *wire) int64(v int64) { *w = binary.BigEndian.AppendUint64(*w, uint64(v)) }

// open leaves room for a length, which close fills in.
func (w *wire) open() (at int) {
	w.int32(0)
	return len(*w)
}

func (w *wire) close(at int) {
	binary.BigEndian.PutUint32((*w)[at-4:], uint32(len(*w)-at))
}

func (w *wire) fieldInt32(v int32) {
	w.int32(pgtype.Int4OID)
	w.int32(4)
	w.int32(v)
}

func (w *wire) fieldInt64(v int64) {
	w.int32(pgtype.Int8OID)
	w.int32(8)
	w.int64(v)
}

func (w *wire) fieldText(s string) {
	w.int32(pgtype.TextOID)
	w.int32(int32(len(s)))
	*w = append(*w, s...)
}

func (w *wire) fieldBytes(b []byte) {
	w.int32(pgtype.ByteaOID)
	w.int32(int32(len(b)))
	*w = append(*w, b...)
}

func (w *wire) fieldNull(oid uint32) {
	w.int32(int32(oid))
	w.int32(-1)
}

func (w *wire) fieldTime(t time.Time) {
	if t.IsZero() {
		w.fieldNull(pgtype.TimestamptzOID)
		return
	}
	w.int32(pgtype.TimestamptzOID)
	w.int32(8)
	w.int64(t.UnixMicro() - pgEpoch)
}

// fieldArray appends a one-dimensional array of n elements.
func (w *wire) fieldArray(arrayOID, elementOID uint32, n int, element func(i int)) {
	w.int32(int32(arrayOID))
	at := w.open()
	w.arrayHeader(elementOID, n)
	for i := range n {
		element(i)
	}
	w.close(at)
}

func (w *wire) arrayHeader(elementOID uint32, n int) {
	if n == 0 {
		w.int32(0)
		w.int32(0)
		w.int32(int32(elementOID))
		return
	}
	w.int32(1) // dimensions
	w.int32(0) // no NULLs
	w.int32(int32(elementOID))
	w.int32(int32(n))
	w.int32(1) // lower bound
}

// array reads the elements of a one-dimensional array.
type array struct {
	rest []byte
	n    int
}

func readArray(b []byte) (array, error) {
	if len(b) < 12 {
		return array{}, fmt.Errorf("array of %d bytes", len(b))
	}
	if binary.BigEndian.Uint32(b) == 0 {
		return array{}, nil
	}
	if binary.BigEndian.Uint32(b) != 1 || len(b) < 20 {
		return array{}, fmt.Errorf("array of %d dimensions", binary.BigEndian.Uint32(b))
	}
	return array{rest: b[20:], n: int(binary.BigEndian.Uint32(b[12:]))}, nil
}

// next returns the next element's bytes; NULL gives nil.
func (a *array) next() []byte {
	if len(a.rest) < 4 {
		return nil
	}
	n := int32(binary.BigEndian.Uint32(a.rest))
	a.rest = a.rest[4:]
	if n < 0 || int(n) > len(a.rest) {
		return nil
	}
	v := a.rest[:n]
	a.rest = a.rest[n:]
	return v
}

func readInt64(b []byte) int64 {
	switch len(b) {
	case 8:
		return int64(binary.BigEndian.Uint64(b))
	case 4:
		return int64(int32(binary.BigEndian.Uint32(b)))
	}
	return 0
}

func readTime(b []byte) time.Time {
	if len(b) != 8 {
		return time.Time{}
	}
	return time.UnixMicro(readInt64(b) + pgEpoch).UTC()
}
