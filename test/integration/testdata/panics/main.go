// Command panics is the program, except that writing a line of the log panics when it says what PANIC_AT
// does: in the middle of whatever says it.
package main

import (
	"bytes"
	"io"
	"os"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/cli"
)

func main() {
	env := cli.OSEnv()
	env.Stderr = log{env.Stderr, []byte(os.Getenv("PANIC_AT"))}
	os.Exit(cli.Main(os.Args[1:], env))
}

type log struct {
	io.Writer
	trigger []byte
}

func (l log) Write(line []byte) (int, error) {
	if bytes.Contains(line, l.trigger) && !bytes.Contains(line, []byte("panicked")) {
		panic("a bug")
	}
	return l.Writer.Write(line)
}
