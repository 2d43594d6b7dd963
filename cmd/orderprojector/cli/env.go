package cli

import (
	"io"
	"os"
)

// Env is what the commands may use of the process they run in. Tests pass
// buffers and a map.
type Env struct {
	Stdin     io.Reader
	Stdout    io.Writer // data
	Stderr    io.Writer // talk: logs, progress, hints, errors
	LookupEnv func(name string) (string, bool)
	Environ   func() []string // every NAME=value; nil for none

	flush func() // ends what is queued for Stderr; nil where nothing is queued
}

// OSEnv is the Env of the real process.
func OSEnv() *Env {
	return &Env{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, LookupEnv: os.LookupEnv, Environ: os.Environ}
}
