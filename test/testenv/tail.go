//go:build unix

package testenv

import (
	"os"
	"strings"
	"testing"
)

// tail returns the last lines of a text, indented.
func tail(text string, most int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if len(lines) > most {
		lines = lines[len(lines)-most:]
	}
	return "\t" + strings.Join(lines, "\n\t")
}

func tailOfFile(path string, most int) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return "\t(" + err.Error() + ")"
	}
	return tail(string(text), most)
}

// showOnFailure adds a log's end to the output of a test that failed.
func showOnFailure(t testing.TB, name, path string) {
	if t.Failed() {
		t.Logf("last lines of %s:\n%s", name, tailOfFile(path, 40))
	}
}
