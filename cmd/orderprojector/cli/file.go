package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
)

// readFile reads a file of at most so many bytes, or standard input for "-", without the white space behind it.
func (env *Env) readFile(name string, most int64) ([]byte, error) {
	in := env.Stdin
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, &Error{Code: ExitUsage, Err: err}
		}
		defer func() { _ = file.Close() }()
		in = file
	}
	content, err := io.ReadAll(io.LimitReader(in, most+1))
	if err != nil {
		return nil, &Error{Code: ExitUsage, Err: fmt.Errorf("reading %s: %w", name, err)}
	}
	if int64(len(content)) > most {
		return nil, usageError("%s is larger than %d bytes", name, most)
	}
	return bytes.TrimRight(content, " \t\r\n"), nil
}
