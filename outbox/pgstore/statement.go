package pgstore

import (
	"embed"
	"strings"
)

//go:embed queries/*.sql
var queryFiles embed.FS

func statement(name string) string {
	text, err := queryFiles.ReadFile("queries/" + name + ".sql")
	if err != nil {
		panic(err) // a name in this package that has no file: caught by any test
	}
	return string(text)
}

var (
	sqlDiscover = statement("discover")
	sqlLoad     = statement("load")
	sqlBlock    = statement("block")
	sqlRelease  = statement("release")
	sqlStanding = statement("standing")
)

const (
	sqlRemove     = `DELETE FROM outbox WHERE seq = ANY($1::bigint[])`
	sqlRemoveFree = `DELETE FROM outbox WHERE seq = ANY(ARRAY(SELECT seq FROM outbox WHERE seq = ANY($1::bigint[]) FOR UPDATE SKIP LOCKED)) RETURNING seq`
)

// detailBytes bounds what is kept of a failure's cause, which may quote the message.
const detailBytes = 2000

func detail(s string) string {
	if len(s) > detailBytes {
		s = s[:detailBytes] + "…"
	}
	return storable(s)
}

// storable makes text fit for a database in UTF-8.
func storable(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\ufffd"), "\x00", "\ufffd")
}
