package pgstore

import (
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// orderKeys are the order IDs that a statement of a batch is about: a value of the type text[].
type orderKeys struct {
	ids    []string
	buffer *encodeBuffer
}

func (t *tx) keys(orderIDs []string) orderKeys { return orderKeys{orderIDs, bufferOf(t.Conn())} }

// keysCodec is the codec of text[], which also encodes orderKeys: without an allocation for each.
type keysCodec struct{ *pgtype.ArrayCodec }

func registerKeys(conn *pgx.Conn) {
	types := conn.TypeMap()
	text, _ := types.TypeForOID(pgtype.TextOID)
	types.RegisterType(&pgtype.Type{
		Name: "_text", OID: pgtype.TextArrayOID, Codec: keysCodec{&pgtype.ArrayCodec{ElementType: text}},
	})
}

func (c keysCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if _, ok := value.(orderKeys); ok && format == pgtype.BinaryFormatCode {
		return keysPlan{}
	}
	return c.ArrayCodec.PlanEncode(m, oid, format, value)
}

type keysPlan struct{}

func (keysPlan) Encode(value any, buf []byte) ([]byte, error) {
	k := value.(orderKeys)
	return k.buffer.encode(buf, func(w *wire) {
		w.arrayHeader(pgtype.TextOID, len(k.ids))
		for _, id := range k.ids {
			w.int32(int32(len(id)))
			*w = append(*w, id...)
		}
	}), nil
}
