//go:build unix

package testenv

import (
	"crypto/rand"
	"encoding/hex"
	"strings"
	"testing"
)

// Name returns a name that no other test uses, for a topic, a consumer group
// or a database: lower-case letters, digits and hyphens, at most 50 bytes.
func Name(t testing.TB) string {
	t.Helper()
	return uniqueName(t.Name())
}

func uniqueName(from string) string {
	readable := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + ('a' - 'A')
		default:
			return '-'
		}
	}, from)
	if len(readable) > 35 {
		readable = readable[:35]
	}
	var random [6]byte
	_, _ = rand.Read(random[:]) // never fails
	return readable + "-" + hex.EncodeToString(random[:])
}
