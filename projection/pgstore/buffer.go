package pgstore

import (
	"github.com/jackc/pgx/v5"
)

// maxKeptBuffer is how large a buffer may be that is kept for the next batch, in bytes.
const maxKeptBuffer = 8 << 20

// encodeBuffer is memory for encoding a statement's large parameter, used again for the
// next one of the same connection: megabytes a batch, which were a third of all that the program allocated.
type encodeBuffer struct{ memory []byte }

// bufferOf returns the buffer that belongs to a connection.
func bufferOf(conn *pgx.Conn) *encodeBuffer {
	const key = "orderprojector encode buffer"
	known := conn.PgConn().CustomData()
	b, ok := known[key].(*encodeBuffer)
	if !ok {
		b = &encodeBuffer{}
		known[key] = b
	}
	return b
}

// encode appends a parameter to those of the statement that stand before it. Only the first
// can have the buffer: the others have to stand behind it in the same memory.
func (b *encodeBuffer) encode(before []byte, parameter func(w *wire)) []byte {
	if len(before) > 0 {
		w := wire(before)
		parameter(&w)
		return w
	}
	w := wire(b.memory[:0])
	parameter(&w)
	if cap(w) <= maxKeptBuffer {
		b.memory = w[:0]
	}
	return w
}
