// Package migrations holds the database schema as embedded SQL files, applied
// by `orderprojector migrate`.
package migrations

import "embed"

// FS holds the migration files.
//
//go:embed *.sql
var FS embed.FS
