package cli

import (
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/lmittmann/tint"
	"golang.org/x/term"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
)

// logger writes to standard error: JSON, plain text, or text with colour for a
// person at a terminal.
func (env *Env) logger(log config.Log) *slog.Logger {
	options := &slog.HandlerOptions{Level: log.Level}
	switch {
	case log.Format == "json":
		return slog.New(slog.NewJSONHandler(env.Stderr, options))
	case isTerminal(env.Stderr):
		return slog.New(tint.NewTextHandler(env.Stderr, &tint.Options{Level: log.Level, TimeFormat: time.TimeOnly, NoColor: !env.colour()}))
	}
	return slog.New(slog.NewTextHandler(env.Stderr, options))
}

// colour follows https://no-color.org: any non-empty value turns colour off.
func (env *Env) colour() bool {
	if v, _ := env.LookupEnv("NO_COLOR"); v != "" {
		return false
	}
	v, _ := env.LookupEnv("TERM")
	return v != "dumb"
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
